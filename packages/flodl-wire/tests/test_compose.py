"""The words for docker compose, and the script that says them elsewhere. (A shell runs it in flodl-agent's tests.)"""

from __future__ import annotations

import json

import pytest

from flodl_wire import compose

PAIRS = ["tower:10.0.0.2", "six:fd00::2"]


def test_variables_go_in_by_name_and_hosts_as_pairs() -> None:
    words = compose.run_words("cuda", ["B", "A"], PAIRS)
    assert words == [
        "run", "--rm", "-T", "-e", "A", "-e", "B", "--add-host", PAIRS[0], "--add-host", PAIRS[1], "cuda",
    ]  # fmt: skip
    assert compose.run_words("cuda", [], [], tty=True) == ["run", "--rm", "cuda"]


def test_the_second_compose_file_gives_the_hosts_to_the_service() -> None:
    assert json.loads(compose.overlay("cuda", PAIRS)) == {"services": {"cuda": {"extra_hosts": PAIRS}}}
    assert compose.overlay_name("cuda") == ".fdl/compose-hosts.cuda.yml"
    assert compose.override_of("docker-compose.yml") == "docker-compose.override.yml"


@pytest.mark.parametrize("pairs", [[], PAIRS])
def test_the_script_is_one_line_because_a_csh_takes_no_other(pairs: list[str]) -> None:
    script = compose.script("cuda", ["A"], pairs, "exec x", ["cannot", "fix: it's easy"])
    assert "\n" not in script
    assert "-e A" in script and "A=" not in script


@pytest.mark.parametrize(
    ("said", "takes"),
    [
        ("  --add-host list\n  --rm", True),
        ("  --rm   Automatically remove", False),
        ("", True),
        ("unknown command", True),
    ],
)
def test_the_option_is_left_out_only_where_this_docker_is_known_not_to_take_it(said: str, takes: bool) -> None:
    assert compose.takes_add_host(said) is takes
