"""A rank of mode torch without torch: speaks to the store as TCPStore's own client does (torch 2.13,
torch/csrc/distributed/c10d/TCPStoreBackend.hpp), in the order of its words.

store_rank.py WORD …      barrier: meet all ranks; exit:RANK:CODE; hang: wait for a key that nobody sets
"""

import os
import socket
import struct
import sys

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
VALIDATE, SET, ADD, WAIT, PING = 0, 1, 4, 6, 13
MAGIC, STOP_WAITING = 0x3C85F7CE, 0


class Store:
    def __init__(self, host: str, port: int) -> None:
        self.sock = socket.create_connection((host, port))
        self.sock.sendall(struct.pack("<BI", VALIDATE, MAGIC) + struct.pack("<BI", PING, 4711))
        assert struct.unpack("<I", self.read(4)) == (4711,)

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                raise ConnectionResetError("the store is gone")
            data += more
        return data

    def set(self, key: bytes, value: bytes) -> None:
        self.sock.sendall(bytes([SET]) + word(key) + word(value))

    def add(self, key: bytes, amount: int) -> int:
        self.sock.sendall(bytes([ADD]) + word(key) + struct.pack("<q", amount))
        return int.from_bytes(self.read(8), "little")

    def wait(self, key: bytes) -> None:
        self.sock.sendall(bytes([WAIT]) + struct.pack("<Q", 1) + word(key))
        assert self.read(1) == bytes([STOP_WAITING])


def word(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def main(words: list[str]) -> int:
    store = Store(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    for number, what in enumerate(words):
        if what == "barrier":
            if store.add(b"arrived %d" % number, 1) == WORLD:
                store.set(b"all %d" % number, b"here")
            store.wait(b"all %d" % number)
            print(f"rank {RANK} is past the barrier", flush=True)
        elif what == "hang":
            store.wait(b"never")
        else:
            _, rank, code = what.split(":")
            if int(rank) == RANK:
                return int(code)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except OSError as err:
        sys.exit(f"rank {RANK}: {err}")
