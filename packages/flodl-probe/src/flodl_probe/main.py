"""The executable `flodl-probe`: says whether a box is fit and what it has. Each verb is a file of its own, loaded when
it is asked for.
"""

import sys

VERBS = ("devices", "answer", "schema")


def main(argv: list[str] | None = None) -> int:
    try:  # a Ctrl-C while this is imported has no guard yet
        from flodl_wire.faults import guarded

        words = sys.argv[1:] if argv is None else argv
        return guarded("flodl-probe", lambda: run(words), as_json="--json" in words)
    except KeyboardInterrupt:
        return 130  # exits.INTERRUPTED


def run(words: list[str]) -> int:
    if words[:1] == ["--version"]:
        from flodl_probe.release import version

        print(f"flodl-probe {version()}")
        return 0
    if words[:1] == ["devices"]:
        from flodl_probe.cli_devices import main as verb_main
    elif words[:1] == ["answer"]:
        from flodl_probe.cli_answer import main as verb_main
    elif words[:1] == ["schema"]:
        from flodl_probe.cli_schema import main as verb_main
    elif words and not words[0].startswith("-"):
        from flodl_wire.faults import usage

        raise usage(
            f"cannot do `flodl-probe {words[0]}`",
            "there is no such command",
            f"flodl-probe by itself audits; its commands are {', '.join(VERBS)}",
        )
    else:
        from flodl_probe.cli_audit import main as audit_main

        return audit_main(words)
    return verb_main(words[1:])


if __name__ == "__main__":
    raise SystemExit(main())
