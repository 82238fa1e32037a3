"""The operator's switch: who may fire it, what it answers, and `flodl-window start` against a real window."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from window_fleet import a_hello, dial, join
from window_served import TOKEN, Window
from window_worlds import Driven, cluster, hello

from flodl_window import cli_start, start_proof
from flodl_window import events as ev
from flodl_wire import address, blob, environ
from flodl_wire.config import Cluster, Controller, JoinWindow
from flodl_wire.faults import Broken, Refused, Transient
from flodl_wire.join_messages import Accept, WorldFormed
from flodl_wire.specs import LaunchConfig

# the machine


def held(**join: Any) -> Driven:
    world = Driven(cluster(discovery=True, token=TOKEN, min_rank_start=2, start="manual", **join), fanout=False)
    world.hello(hello("a"))
    return world


def ask(world: Driven, trusted: bool = True) -> tuple[int, str]:
    answer = next(effect for effect in world.do(ev.StartAsked(trusted)) if isinstance(effect, ev.AnswerStart))
    return answer.status, json.dumps(answer.body)


def test_a_start_is_refused_in_the_order_of_what_is_wrong() -> None:
    auto = Driven(cluster(discovery=True, token=TOKEN, min_rank_start=2), fanout=False)
    assert ask(auto, trusted=False)[0] == 409, "no switch comes before trust"
    world = held()
    status, why = ask(world, trusted=False)
    assert status == 403 and "--token" in why, "trust comes before counts"
    status, why = ask(world)
    assert status == 409 and "1/2" in why
    world.hello(hello("b"))
    assert ask(world, trusted=False)[0] == 403
    assert ask(world)[0] == 200 and world.run.phase.value == "forming"
    status, why = ask(world)
    assert status == 409 and "forming" in why


def test_a_start_may_be_asked_for_twice() -> None:
    world = Driven(cluster(discovery=True, token=TOKEN, min_rank_start=2, start="manual"), fanout=False, ready=False)
    world.hello(hello("a", 2))
    assert ask(world) == ask(world) == (200, '{"armed": true, "joined_ranks": 2, "min_rank_start": 2}')
    assert world.run.phase.value == "staging" and "coordinator" in world.run.why


def test_a_start_is_never_queued_beyond_its_quorum() -> None:
    world = Driven(cluster(discovery=True, token=TOKEN, min_rank_start=2, start="manual"), fanout=False, ready=False)
    world.hello(hello("a"))
    world.hello(hello("b"))
    assert ask(world)[0] == 200
    world.gone("b")
    assert world.run.phase.value == "waiting" and not world.run.window.armed
    assert any("the start is withdrawn" in line for line in world.said)
    from flodl_wire.hub_messages import Ready

    world.hub(Ready("/x"))
    world.hello(hello("c"))
    assert world.run.phase.value == "staging", "it waits for the operator again"


# the proof


def test_the_proof_holds_for_one_window_and_one_token_and_hides_both() -> None:
    made = start_proof.proof(TOKEN, "nonce")
    header = f"Flodl {made}"
    assert start_proof.holds(header, TOKEN, "nonce") and TOKEN not in made
    assert not start_proof.holds(header, TOKEN, "other")
    assert not start_proof.holds(header, "ff" * 16, "nonce")
    for wrong in ("", "Flodl", f"Flodl {TOKEN}", f"Bearer {made}", made, "Flodl \xe4", f"Flodl {made}0"):
        assert not start_proof.holds(wrong, TOKEN, "nonce")


def test_the_proof_is_the_one_of_the_protocol() -> None:
    import hashlib
    import hmac

    wanted = hmac.new(bytes.fromhex(TOKEN), b"flodl start v1\nnonce", hashlib.sha256).hexdigest()
    assert start_proof.proof(TOKEN, "nonce") == wanted


def test_loopback_is_trusted_unless_tunnels_lead_to_it() -> None:
    header = f"Flodl {start_proof.proof(TOKEN, 'nonce')}"
    for loopback, tunneled, authorization, wanted in (
        (True, False, "", True),
        (True, True, "", False),
        (True, True, header, True),
        (False, False, "", False),
        (False, False, header, True),
    ):
        assert start_proof.trusted(loopback, tunneled, authorization, TOKEN, "nonce") is wanted


# the verb


def test_the_token_comes_from_the_flag_or_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli_start._token(None) is None and cli_start._token(TOKEN) == TOKEN
    made = Cluster(Controller("10.0.0.5", "/p", join=JoinWindow(token=TOKEN)))
    monkeypatch.setenv(environ.CONFIG_JSON, blob.encode(LaunchConfig(made)))
    assert cli_start._token(None) == TOKEN
    made = Cluster(Controller("10.0.0.5", "/p", join=JoinWindow(token="secret")))
    monkeypatch.setenv(environ.CONFIG_JSON, blob.encode(LaunchConfig(made)))
    with pytest.raises(Refused) as caught:
        cli_start._token(None)
    assert caught.value.exit_code == 1 and "secret" not in caught.value.render()


@pytest.mark.parametrize("token", ["", "ab", "g" * 32, TOKEN.upper(), TOKEN + "0", " " + TOKEN])
def test_a_token_that_cannot_be_is_a_usage_error_that_does_not_repeat_it(token: str) -> None:
    with pytest.raises(Refused) as caught:
        cli_start.main(["--token", token])
    assert caught.value.exit_code == 2 and (not token or token not in caught.value.render())


@pytest.mark.parametrize("words", [["--tokn", "x"], ["--token"], ["now"], ["--addr", "h:99999"]])
def test_a_wrong_word_is_a_usage_error(words: list[str]) -> None:
    with pytest.raises(Refused) as caught:
        cli_start.main(words)
    assert caught.value.exit_code == 2


def test_start_imports_nothing_heavy() -> None:
    code = "import sys, flodl_window.main, flodl_window.cli_start; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in ("msgspec", "asyncio", "http", "argparse", "yaml", "cryptography", "dataclasses", "typing", "hashlib"):
        assert f"'{heavy}'" not in loaded, heavy


def test_a_controller_that_goes_away_in_the_middle_is_told_from_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_start, "fetch", lambda where: ("127.0.0.1:1", b'{"instance": "n"}'))
    with pytest.raises(Transient) as caught:
        cli_start.fire([address.Address("127.0.0.1", 1)], None)
    assert "cannot tell whether" in caught.value.what
    monkeypatch.setattr(cli_start, "fetch", lambda where: ("127.0.0.1:1", b"[]"))
    with pytest.raises(Broken):
        cli_start.fire([address.Address("127.0.0.1", 1)], None)


# a real window


@pytest.fixture
def window(tmp_path: Path, free_port: int) -> Iterator[Window]:
    made = Window(tmp_path, free_port)
    yield made
    made.end()


def test_the_operator_holds_the_roster_and_fires(window: Window, capsys: pytest.CaptureFixture[str]) -> None:
    here = ["--addr", f"127.0.0.1:{window.port}"]

    async def run() -> None:
        ask = asyncio.get_running_loop().run_in_executor
        one, answer = await join(window.port, bytes.fromhex(TOKEN), a_hello("one"))
        assert isinstance(answer, Accept) and answer.args == ["--lr", "1"]
        assert await ask(None, cli_start.main, here) == 1
        assert "1/2 ranks are in" in capsys.readouterr().err
        two, _ = await join(window.port, bytes.fromhex(TOKEN), a_hello("two"))
        assert (await ask(None, window.state))["phase"] == "staging"
        assert await ask(None, window.post, "Origin: http://evil.example") == 403
        assert await ask(None, window.post, "Sec-Fetch-Site: cross-site") == 403
        assert (await ask(None, window.state))["start_armed"] is False
        assert await ask(None, cli_start.main, here) == 0
        assert "the world forms with the 2 ranks" in capsys.readouterr().out
        for peer in (one, two):
            letter = await peer.until(WorldFormed)
            assert letter.command is None and letter.args == ["--lr", "1"]
            peer.close()

    asyncio.run(asyncio.wait_for(run(), 30))
    assert TOKEN not in json.dumps(window.state())


def test_eight_hosts_by_every_alias_make_one_world_and_a_late_one_is_told(window: Window) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        aliases = ["127.0.0.1", "localhost", "127.0.0.1", "::1"] if socket.has_ipv6 else ["127.0.0.1", "localhost"]
        salt = bytes.fromhex(TOKEN)

        async def one(number: int) -> tuple[Any, Any]:
            peer = await dial(window.port, salt, host=aliases[number % len(aliases)])
            peer.send(a_hello(f"h{number}"))
            return peer, await peer.receive()

        came = await asyncio.gather(*(one(number) for number in range(8)))
        assert sorted(rank for _, answer in came for rank in answer.ranks) == list(range(8))
        late, status = await asyncio.gather(one(8), loop.run_in_executor(None, window.post))
        assert status == 200
        in_time = isinstance(late[1], Accept)
        assert in_time or late[1].code == "window-closed", "fully in, or told why not"
        world = [*came, late] if in_time else came
        ranks = []
        for peer, _ in world:
            letter = await peer.until(WorldFormed)
            assert letter.envelope.world_size == len(world)
            ranks += letter.envelope.worker.ranks
        assert sorted(ranks) == list(range(len(world)))
        for peer, _ in [*came, late]:
            peer.close()

    asyncio.run(asyncio.wait_for(run(), 30))


def own_address() -> str:
    """An address of this box that is not loopback, "" when there is none. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def test_from_another_address_the_token_is_needed_and_never_sent(tmp_path: Path, free_port: int) -> None:
    here = own_address()
    if not here:
        pytest.skip("this box has no address but loopback")
    window = Window(tmp_path, free_port, host=here)
    try:
        place = [address.Address(here, free_port)]
        assert cli_start.fire(place, None)[0] == 403
        assert cli_start.fire(place, "ff" * 16)[0] == 403
        status, body = cli_start.fire(place, TOKEN)
        assert status == 409 and b"0/2" in body
    finally:
        window.end()
