"""A publish on this box while the window is open."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
from window_fleet import a_hello, join
from window_served import TOKEN, Window

from flodl_window.served_folder import ServedFolder
from flodl_wire.join_messages import Accept, Reject, WorldFormed
from flodl_wire.served_runs import FILE, with_run

OLD, NEW = "a" * 32, "b" * 32


def publish(served: Path, run: str) -> None:
    """As a publish writes it down: a new file in the place of the old."""
    file = served / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    (file.parent / "new").write_bytes(with_run(served, run))
    (file.parent / "new").replace(file)


def test_what_has_not_changed_is_no_news(tmp_path: Path) -> None:
    folder = ServedFolder(tmp_path)
    assert folder.news() is None and ServedFolder(None).news() is None
    publish(tmp_path, OLD)
    assert folder.news() == (OLD,) and folder.news() is None
    publish(tmp_path, NEW)
    assert folder.news() == (OLD, NEW) and folder.news() is None
    (tmp_path / FILE).unlink()
    assert folder.news() is None, "who was stale stays so"


def test_members_hear_of_a_publish_at_once_and_the_start_is_refused_until_they_are_back(
    tmp_path: Path, free_port: int
) -> None:
    served = tmp_path / "served"
    publish(served, OLD)
    window = Window(tmp_path, free_port, to=served)

    async def run() -> None:
        salt = bytes.fromhex(TOKEN)
        ask = asyncio.get_running_loop().run_in_executor
        for host in ("tower", "attic"):
            peer, answer = await join(window.port, salt, msgspec.structs.replace(a_hello(host), run_id=OLD))
            assert isinstance(answer, Accept)
            members.append(peer)
        publish(served, NEW)
        assert await ask(None, window.post) == 409, "quorum is gone with the publish, not a moment later"
        for peer in members:
            told = await peer.until(Reject)
            assert told.code == "run-superseded" and await peer.receive() is None, "and the link is closed"
            peer.close()
        back = [
            await join(window.port, salt, msgspec.structs.replace(a_hello(host), run_id=NEW))
            for host in ("tower", "attic")
        ]
        assert await ask(None, window.post) == 200
        for peer, _ in back:
            await peer.until(WorldFormed)
            peer.close()

    members: list[object] = []
    try:
        asyncio.run(asyncio.wait_for(run(), 30))
    finally:
        window.end()
