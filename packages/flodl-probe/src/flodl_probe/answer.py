"""What came back from a box, understood: a report among whatever its shell printed, or why there is none. Pure."""

from __future__ import annotations

import msgspec

from flodl_probe.exchange import Outcome
from flodl_probe.finding import Finding, error, warning
from flodl_probe.question import Question, Role
from flodl_probe.report import HostReport
from flodl_wire import exits
from flodl_wire.messages import encode_message

MARKER = b"flodl-probe-report:"
CHECK = "reach"
INSTALL = "python3 -m venv .venv && .venv/bin/pip install flodl-probe"


def encode(report: HostReport) -> bytes:
    """One line that is found again behind any banner, also one without a line end."""
    return b"\n" + MARKER + encode_message(report) + b"\n"


def decode(stdout: bytes) -> tuple[HostReport | None, str, str]:
    """(the report, what else was printed, why there is none)."""
    pieces = stdout.split(MARKER)
    flaw = ""
    for index in range(len(pieces) - 1, 0, -1):  # ours is the last; a shell could print the marker itself
        line, _, tail = pieces[index].partition(b"\n")
        try:
            report = msgspec.json.decode(line, type=HostReport)
        except (msgspec.MsgspecError, RecursionError) as err:
            flaw = flaw or str(err)
            continue
        other = b"".join([*pieces[:index], tail, *pieces[index + 1 :]])
        return report, other.decode("utf-8", "replace").strip(), ""
    return None, stdout.decode("utf-8", "replace").strip(), flaw


def understand(asked: Question, outcome: Outcome, command: str, own_version: str, seconds: float) -> HostReport:
    """The row of this host, whatever came. `command`: the ssh that a person can try, "" for this box."""
    report, other, flaw = decode(outcome.stdout)
    if report is None:
        finding = _why_not(asked, outcome, command, flaw, seconds)
        return unreached(asked.host, asked.role, asked.devices, finding, outcome)
    report.host, report.role = asked.host, asked.role
    more: list[Finding] = []
    if other:
        first = other.splitlines()[0][:80]
        more.append(
            warning(
                "shell",
                "its shell prints text into every ssh command",
                f"{first!r}; rsync, scp and sftp break on that",
                "in ~/.bashrc print only to people: [ -t 1 ] && echo …",
            )
        )
    if report.probe != own_version:
        more.append(
            warning(
                "release",
                f"it has flodl-probe {report.probe or 'of an unknown version'}, this box {own_version}",
                "what the older one does not know is missing in this row",
                "pip install --upgrade flodl-probe",
            )
        )
    report.add(more)
    return report


def unreached(host: str, role: Role, devices: str, finding: Finding, outcome: Outcome | None = None) -> HostReport:
    made = HostReport(host, "error", role, reached=False, devices=devices)
    made.seconds = round(outcome.seconds, 3) if outcome else 0.0
    made.add([finding])
    return made


def _why_not(asked: Question, outcome: Outcome, command: str, flaw: str, seconds: float) -> Finding:
    what = f"cannot ask {asked.host}"
    words = [line.strip() for line in outcome.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    last = words[-1] if words else ""
    by_hand = f"try it: {command}" if command else "flodl-probe answer </dev/null shows more"
    if outcome.failure:
        return error(CHECK, what, outcome.failure, "install OpenSSH's client")
    if flaw:
        return _other_version(what, f"its flodl-probe answers in another form ({flaw})")
    if outcome.code == exits.NO_COMMAND:
        return error(CHECK, what, "flodl-probe is not installed there", f"cd {asked.path or '~'} && {INSTALL}")
    if outcome.code == exits.USAGE and "answer" in " ".join(words):
        return _other_version(what, "its flodl-probe does not know how to answer")
    if outcome.code is None:
        why = f"no answer in {seconds:g} s" + (f"; last words: {last}" if last else "")
        return error(CHECK, what, why, f"{by_hand}; a slow host: --timeout {2 * seconds:g}")
    text = " ".join(words)
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in text or "Host key verification failed" in text:
        fix = next((line for line in words if line.startswith("ssh-keygen")), f"ssh-keygen -R {asked.host}")
        return error(CHECK, what, "its host key is another one than before", f"if you know why it changed: {fix}")
    if "Permission denied" in last:
        return error(CHECK, what, f"ssh says: {last}", f"ssh-copy-id {asked.host} (with the user and key of fdl.yml)")
    if outcome.code == 255:
        return error(CHECK, what, f"ssh says: {last or 'nothing'}", by_hand)
    return error(CHECK, what, last or f"it ended with exit {outcome.code} and no answer", by_hand)


def _other_version(what: str, why: str) -> Finding:
    return error(CHECK, what, why, "pip install --upgrade flodl-probe, there and here")
