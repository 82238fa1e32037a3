"""Where a run's page is said to be, and who may press its switch."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

import msgspec
import pytest
from window_worlds import SALT, charter, cluster

from flodl_window import start_proof
from flodl_window.live.board import Board
from flodl_window.port import Bound
from flodl_window.run_pages import RunPages


class Watched:
    """A board of which only the end is asked."""

    ended = False

    def end(self) -> None:
        self.ended = True


def pages(shown: str = "127.0.0.1", *, tunnel: bool = False) -> tuple[RunPages, list[bool]]:
    """The pages of a run on port 1337, and what its machine was asked."""
    asked: list[bool] = []

    def fire(trusted: bool) -> tuple[int, dict[str, object]]:
        asked.append(trusted)
        return (200 if trusted else 403), {}

    of = cluster("cpu:2", host="desk.example")
    of = msgspec.structs.replace(of, workers=[msgspec.structs.replace(of.workers[0], tunnel=tunnel)])
    bound = Bound([], 1337, shown, loopback=shown == "127.0.0.1")
    return RunPages(charter(of), bound, cast(Board, Watched()), fire), asked


@pytest.mark.parametrize(
    ("shown", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:1337/"),
        ("10.0.0.1", "http://10.0.0.1:1337/"),
        ("fd00::2", "http://[fd00::2]:1337/"),
        ("every address", "http://127.0.0.1:1337/"),
        ("::", "http://127.0.0.1:1337/"),
    ],
)
def test_a_browser_of_this_box_is_told_an_address_that_it_can_open(shown: str, address: str) -> None:
    assert pages(shown)[0].address == address


def test_the_second_address_is_the_one_that_is_told_and_closes_with_the_rest(free_port: int) -> None:
    async def run() -> None:
        made, _ = pages("10.0.0.1")
        assert await made.open_apart("127.0.0.1", free_port) == ""
        assert (made.port, made.address) == (free_port, f"http://127.0.0.1:{free_port}/")
        made.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", free_port)

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_second_address_that_others_reach_is_said_to_be_one(free_port: int) -> None:
    async def run() -> None:
        made, _ = pages()
        assert "can read this run's page (and nothing more)" in await made.open_apart("0.0.0.0", free_port)
        assert made.address == f"http://127.0.0.1:{free_port}/"
        made.close()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_second_address_that_is_taken_costs_a_line_and_not_the_page() -> None:
    async def run(port: int) -> None:
        made, _ = pages()
        said = await made.open_apart("127.0.0.1", port)
        assert said.startswith(f"cannot serve the page on 127.0.0.1:{port}: ")
        assert said.endswith("; the run's own port has it in any case")
        assert (made.port, made.address) == (1337, "http://127.0.0.1:1337/")
        made.close()

    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        asyncio.run(asyncio.wait_for(run(holder.getsockname()[1]), 20))


@pytest.mark.parametrize(
    ("tunnel", "loopback", "proven", "trusted"),
    [
        (False, True, False, True),
        (False, False, False, False),
        (False, False, True, True),
        (True, True, False, False),
        (True, True, True, True),
    ],
)
def test_the_switch_trusts_this_box_or_the_token(tunnel: bool, loopback: bool, proven: bool, trusted: bool) -> None:
    made, asked = pages(tunnel=tunnel)
    words = f"{start_proof.SCHEME} {start_proof.proof(SALT, 'nonce')}" if proven else ""
    assert made.start(loopback=loopback, authorization=words) == (200 if trusted else 403, {})
    assert asked == [trusted]


@pytest.mark.parametrize(
    ("host", "own"),
    [
        *((host, True) for host in ("localhost", "Desk.Example", "desk", "192.0.2.7", "::1", "")),
        *((host, False) for host in ("evil.example", "evil\0.example", "a" * 5000, "127.0.0.1\0", "::1%\0")),
    ],
)
def test_its_own_names_are_the_controller_s_and_every_number(host: str, own: bool) -> None:
    assert pages()[0].is_own_name(host) is own
