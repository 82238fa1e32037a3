"""For which cards a library is: read from bytes as nvcc writes them, or asked of a stand-in for cuobjdump."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncclbuild_box import Box, libnccl, needs_compiler

from flodl_ncclbuild import contents


def fat(*entries: tuple[int, int], magic: int = 0xBA55ED50) -> bytes:
    """A fat binary with (kind, architecture) entries, headers and bodies of nvcc's sizes."""
    body = b"".join(
        struct.pack("<HHIQ12xI", kind, 257, 64, 8, arch) + bytes(64 - 32) + b"\x7fELFcode" for kind, arch in entries
    )
    return struct.pack("<IHHQ", magic, 1, 16, len(body)) + body


def test_code_and_ptx_are_told_apart_over_all_fat_binaries_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(b"\x7fELF" + bytes(60) + fat((2, 61), (2, 120)) + bytes(8) + fat((2, 61), (1, 120), (16, 90)))
    assert contents.read(path) == contents.Contents((61, 120), (120,), "its fat binaries")


@pytest.mark.parametrize("tail", [fat((2, 90))[:-1], b"\x50\xed\x55\xba", fat()[:9], b""])
def test_what_is_cut_off_or_only_looks_like_one_says_nothing(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(tail)
    assert contents.read(path)[:2] == ((), ())


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_no_bytes_upset_the_reader(tmp_path_factory: pytest.TempPathFactory, before: bytes, after: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.so"
    path.write_bytes(before + b"\x50\xed\x55\xba\x01\x00\x10\x00" + after)
    contents.read(path)


@needs_compiler
def test_cuobjdump_is_asked_where_it_is_installed(box: Box) -> None:
    path = libnccl(box.project / "libnccl.so.2")
    assert "it holds no device code (by its fat binaries)" in box.run("check", str(path)).stdout
    box.stand_in(
        "cuobjdump",
        """
kind = "ELF" if words[0] == "--list-elf" else "PTX"
for arch in ((61, 120) if kind == "ELF" else (120,)):
    print(f"{kind} file    1: libnccl.1.sm_{arch}.{'cubin' if kind == 'ELF' else 'ptx'}")
""",
    )
    assert box.run("check", str(path)).stdout.endswith("for sm61, sm120, PTX sm120 (by cuobjdump)\n")
    assert box.recorded("cuobjdump") == [["--list-elf", str(path)], ["--list-ptx", str(path)]]
    box.stand_in("cuobjdump", "sys.exit(1)")
    assert "by its fat binaries" in box.run("check", str(path)).stdout
