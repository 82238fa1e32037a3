"""When the hub maps the memory of a relay on its own box: the layout comes with a hello, whose is anybody's guess."""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Raw

from flodl_planes.hub.relay_link import SharedLink
from flodl_planes.hub.transport import HubTransport
from flodl_planes.plane.frame_socket import FrameSocket
from flodl_planes.plane.layout import Layout, lay_out
from flodl_wire.messages import encode_message
from flodl_wire.plane_messages import FromRank, RankHello, RelayHello, Shared, TensorSpec, Terms

TENSORS = [TensorSpec("w", [4], "F32", "param")]
TERMS = Terms(mode="cpu_cadence", dataset=8, batch_size=1, epochs=1, seed=0, evaluates=False)


class Beside(SharedLink):
    """Of the relay of a host; only notes that it is attached."""

    attached = False

    def attach(self, layout: Layout) -> None:
        assert self.shared
        self.shared, self.attached = None, True


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubTransport]:
    made = HubTransport(str(tmp_path / "hub.sock"), b"", False, queue.SimpleQueue())
    yield made
    made.close()


@pytest.mark.parametrize(
    "order", ["shared b, hello a, hello b", "hello a, shared b, hello b", "shared b, hello b, hello a"]
)
def test_a_relay_that_has_shared_its_memory_is_attached_with_its_last_hello_at_the_latest(
    hub: HubTransport, order: str
) -> None:
    """In the first order another relay's thread hears the first hello between the two words of this one."""
    links: dict[str, Beside] = {}
    for rank, host in enumerate("ab"):
        ours, theirs = socket.socketpair()
        theirs.close()
        links[host] = Beside(FrameSocket(ours))
        hub._hear(links[host], RelayHello(host, [rank]))
    layout = lay_out(TENSORS)
    for word, host in (step.split() for step in order.split(", ")):
        rank = "ab".index(host)
        if word == "shared":
            hub._hear(links[host], Shared([rank], layout.total_bytes, layout.sum_bytes))
        else:
            hello = RankHello(rank, TERMS, TENSORS, layout.sections, "sig")
            hub._hear(links[host], FromRank(rank, Raw(encode_message(hello))))
    assert links["b"].attached and not links["a"].attached
