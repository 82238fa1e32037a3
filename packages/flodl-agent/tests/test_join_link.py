"""The join link where the other side is quicker to leave than we are."""

from __future__ import annotations

import asyncio
import socket
import struct

from flodl_agent.join_link import JoinLink


def test_a_goodbye_to_who_has_reset_the_connection_is_the_end_and_no_error() -> None:
    async def visit() -> bool:
        with socket.create_server(("127.0.0.1", 0)) as server:
            near = socket.create_connection(server.getsockname())
            far, _ = server.accept()
            near.setblocking(False)
            loop = asyncio.get_running_loop()
            _, link = await loop.create_connection(lambda: JoinLink(bytes(32)), sock=near)
            far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            far.close()  # resets, and the loop has no turn to hear of it
            await link.goodbye()
            return link._transport.is_closing()

    assert asyncio.run(visit())
