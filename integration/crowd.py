"""Hosts without processes: any number of them dial one `flodl-window serve` from one loop, and say hello."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from integration.project import BIN

from flodl_wire import frames, preface
from flodl_wire.channel import Initiator
from flodl_wire.join_messages import Accept, Beat, DeviceOffer, Hello, JoinDown, Reject, WorldFormed
from flodl_wire.messages import decode_message, encode_message

TOKEN = "5eed" * 8


class Serving:
    """One `flodl-window serve` on a free port of its own: `async with`."""

    def __init__(self, folder: Path, **join: Any) -> None:
        self.port: int = free_port()
        self.said: list[str] = []
        self._folder = folder
        window = {"discovery": True, "token": TOKEN, **join}
        controller = {"host": "127.0.0.1", "port": self.port, "path": str(folder), "join": window}
        folder.mkdir(exist_ok=True)
        (folder / "c.json").write_text(json.dumps({"cluster": {"controller": controller}}))

    async def __aenter__(self) -> Serving:
        self._process = await asyncio.create_subprocess_exec(
            BIN / "flodl-window", "serve", "--config", "c.json", "--", "true",
            cwd=self._folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        await self._until("window open")
        return self

    async def __aexit__(self, *how: object) -> None:
        for _ in range(2):  # the second one leaves at once, and two of them must not become one
            self._process.send_signal(signal.SIGINT)
            await self._until("SIGINT")
        await self._process.communicate()

    async def _until(self, words: str) -> None:
        """Until it has said `words`."""
        assert self._process.stderr
        while words not in (line := (await self._process.stderr.readline()).decode()):
            self.said.append(line)
            if not line:
                raise AssertionError(f"it ended with {await self._process.wait()}, never said {words!r}: {self.said}")

    async def state(self) -> dict[str, Any]:
        return await asyncio.get_running_loop().run_in_executor(None, self._state)

    def _state(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/state.json", timeout=20) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    async def fire(self) -> int:
        """``POST /start``; the status of the answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"POST /start HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return int(answer.split(b" ")[1])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


class Comer:
    """One host at the door. `close` it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._channel = Initiator(preface.JOIN, bytes.fromhex(TOKEN))
        self._waiting: list[Any] = []

    @classmethod
    async def dial(cls, port: int, name: str, ranks: int = 1) -> Comer:
        """Connected; the hello goes out with the first look for a verdict, behind the handshake."""
        comer = cls(*await asyncio.open_connection("127.0.0.1", port))
        offers = [DeviceOffer("cpu", at, "cpu") for at in range(ranks)]
        comer._channel.send(frames.MESSAGE, encode_message(Hello(name, name, offers)))
        comer._writer.write(comer._channel.data_to_send())
        return comer

    async def verdict(self) -> Accept | Reject:
        answer = await self._next()
        assert isinstance(answer, (Accept, Reject)), answer
        return answer

    async def world(self) -> WorldFormed:
        letter = await self._next()
        assert isinstance(letter, WorldFormed), letter
        return letter

    async def _next(self) -> Any:
        """The next message that is no beat, None at the end of the link."""
        while not self._waiting:
            data = await self._reader.read(1 << 16)
            if not data:
                return None
            for frame in self._channel.receive_data(data):
                message = decode_message(frame.body, JoinDown, "the window")
                if not isinstance(message, Beat):
                    self._waiting.append(message)
            self._writer.write(self._channel.data_to_send())
        return self._waiting.pop(0)

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            pass
