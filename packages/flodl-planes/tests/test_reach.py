"""Whether ranks reach one another is found out before a collective is begun."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from flodl_planes.rank import reach
from flodl_planes.rank.reach import Interrupted, Meeting
from flodl_wire.faults import Broken


class Board:
    """A store in this process."""

    def __init__(self) -> None:
        self._words: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def set(self, key: str, value: str) -> None:
        with self._lock:
            self._words[key] = value.encode()

    def get(self, key: str) -> bytes:
        with self._lock:
            return self._words[key]

    def check(self, keys: list[str]) -> bool:
        with self._lock:
            return all(key in self._words for key in keys)


def meet(
    hosts: list[str], absent: frozenset[int] = frozenset(), turned: Callable[[], bool] = lambda: False
) -> list[str]:
    """What each rank, on its host, hears of the meeting: "" when all is well."""
    board = Board()
    members = list(range(len(hosts)))

    def hold(rank: int) -> str:
        try:
            Meeting(board, "round/0.0", members, rank, turned).hold(hosts[rank])
        except Broken as broken:
            return broken.why
        except Interrupted:
            return "interrupted"
        return ""

    with ThreadPoolExecutor(len(hosts)) as pool:
        return list(pool.map(hold, [rank for rank in members if rank not in absent]))


def test_ranks_that_reach_every_other_host_may_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "=lo")
    assert meet(["a", "a", "b", "c"]) == ["", "", "", ""]


def test_everybody_hears_who_cannot_reach_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    plain = socket.create_connection

    def walled(address: tuple[str, int], *rest: float) -> socket.socket:
        if threading.current_thread().name.endswith("_1"):
            raise TimeoutError("timed out")
        return plain(address, *rest)

    monkeypatch.setattr(reach.socket, "create_connection", walled)
    assert meet(["a", "b", "c"]) == ["b cannot connect to a at 127.0.0.1: timed out"] * 3


def test_one_host_needs_no_road_and_a_host_without_a_named_interface_is_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NCCL_SOCKET_IFNAME", raising=False)
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setattr(reach.socket, "create_connection", None)
    assert meet(["a", "b"]) == ["", ""]


def test_a_rank_that_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "PRESENT_S", 0.0)
    monkeypatch.setenv("FLODL_NET_TIMEOUT_SCALE", "0.1")
    assert meet(["a", "a", "a"], absent=frozenset({1})) == ["rank 1 has not come"] * 2


def test_a_meeting_can_be_called_off() -> None:
    assert meet(["a", "a"], absent=frozenset({1}), turned=lambda: True) == ["interrupted"]


@pytest.mark.parametrize(("name", "address"), [("lo", "127.0.0.1"), ("", ""), ("^docker", ""), ("none7", "")])
def test_an_interfaces_address(name: str, address: str) -> None:
    assert reach.address_of(name) == address
