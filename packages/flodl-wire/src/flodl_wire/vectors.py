"""The test vectors of docs/vectors, made from this code: what another implementation of the protocol checks itself by.

``python -m flodl_wire vectors docs/vectors`` compares, ``--write`` writes. Written once, they change only with the
protocol's version. noise.json is not ours: it is the public set, and stays as it was published. Bytes are hex.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flodl_wire import frames, message_examples, noise, preface
from flodl_wire.channel import Channel, Initiator, Responder
from flodl_wire.faults import Fault
from flodl_wire.plane_messages import CHUNK_BYTES, Section, TensorSpec

SALT = bytes.fromhex("000102030405060708090a0b0c0d0e0f")
DIALLER = bytes.fromhex("893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a")
ACCEPTOR = bytes.fromhex("bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b")


def documents() -> dict[str, Any]:
    """File name → content."""
    return {
        "preface.json": _preface(),
        "frames.json": _frames(),
        "handshake.json": _handshake(),
        "records.json": _records(),
        "messages.json": message_examples.by_link(),
        "flat_layout.json": _flat_layout(),
        "encoded_chunks.json": _encoded_chunks(),
    }


def write(folder: Path) -> Iterator[Path]:
    """Write every file into `folder`; yields each path when it is written."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in documents().items():
        path = folder / name
        path.write_text(_text(content), encoding="utf-8")
        yield path


def differing(folder: Path) -> list[str]:
    """The names of the files in `folder` that are not what this code makes (or are missing)."""

    def stands(name: str) -> str:
        path = folder / name
        return path.read_text(encoding="utf-8") if path.exists() else ""

    return [name for name, content in documents().items() if stands(name) != _text(content)]


def _text(content: Any) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _preface() -> dict[str, Any]:
    rule = "W-1 to W-6"
    taken = [
        {"kind": preface.KINDS[kind], "keyed": keyed, "chacha": chacha, "bytes": head.encode().hex()}
        for kind in preface.KINDS
        for keyed in (True, False)
        for chacha in (False, True)
        for head in [preface.Preface(kind, keyed, chacha)]
    ]
    refused = []
    for name, data in (
        ("another version", preface.MAGIC + b"\x00\x02\x01\x01"),
        ("an unknown kind", preface.MAGIC + b"\x00\x01\x07\x01"),
        ("an unknown flag", preface.MAGIC + b"\x00\x01\x01\x04"),
        ("another magic", b"\xf1\x0d\x17\xe3\x00\x01\x01\x01"),
        ("a refusal", preface.encode_refusal(preface.REASON_KEY)),
        ("HTTP", b"GET / HT"),
    ):
        try:
            preface.parse(data)
        except Fault as fault:
            refused.append({"name": name, "bytes": data.hex(), "code": fault.code})
    refusals = [
        {"reason": reason, "name": name, "bytes": preface.encode_refusal(reason).hex()}
        for reason, name in (
            (preface.REASON_VERSION, "other version"),
            (preface.REASON_KEY, "other salt or token"),
            (preface.REASON_UNKEYED, "no salt or token"),
            (preface.REASON_KIND, "channel not served"),
            (preface.REASON_BUSY, "too many wait"),
        )
    ]
    return {"rules": rule, "version": preface.VERSION, "taken": taken, "refused": refused, "refusals": refusals}


def _frames() -> dict[str, Any]:
    chunk = bytes(range(8))
    good = [
        {
            "kind": "message",
            "body": b'{"type":"beat"}'.hex(),
            "bytes": frames.encode_frame(1, b'{"type":"beat"}').hex(),
        },
        {
            "kind": "chunk",
            "round": 7,
            "attempt": 1,
            "offset": CHUNK_BYTES,
            "body": chunk.hex(),
            "bytes": (frames.chunk_head(7, 1, CHUNK_BYTES, len(chunk)) + chunk).hex(),
        },
        {"kind": "store", "body": b"GET key".hex(), "bytes": frames.encode_frame(3, b"GET key").hex()},
        {"kind": "store", "body": "", "bytes": frames.encode_frame(3, b"").hex()},
    ]
    refused = [
        {"name": f"a {frames.NAMES[kind]} of one byte too many", "bytes": frames.HEAD.pack(limit + 1, kind).hex()}
        for kind, limit in frames.LIMITS.items()
    ]
    refused.append({"name": "an unknown kind", "bytes": frames.HEAD.pack(0, 4).hex()})
    refused.append({"name": "a chunk with no room for its head", "bytes": frames.HEAD.pack(15, frames.CHUNK).hex()})
    return {"rules": "W-20 to W-26", "limits": _limits(), "frames": good, "refused": refused}


def _limits() -> dict[str, int]:
    return {frames.NAMES[kind]: limit for kind, limit in frames.LIMITS.items()}


def _ends(cipher: str, salt: bytes | None) -> tuple[Initiator, Responder]:
    return (
        Initiator(preface.RELAY, salt, cipher, ephemeral=DIALLER),
        Responder(lambda keyed: salt, ephemeral=ACCEPTOR, max_message=frames.LIMITS[frames.MESSAGE]),
    )


def _handshake() -> dict[str, Any]:
    cases = []
    for cipher in (noise.AES, noise.CHACHA):
        for salt in (SALT, None):
            dialler, acceptor = _ends(cipher, salt)
            first = dialler.data_to_send()
            acceptor.receive_data(first)
            second = acceptor.data_to_send()
            dialler.receive_data(second)
            cases.append(
                {
                    "cipher": cipher,
                    "salt": salt.hex() if salt else None,
                    "psk": noise.psk_of(salt).hex(),
                    "dialler_ephemeral": DIALLER.hex(),
                    "acceptor_ephemeral": ACCEPTOR.hex(),
                    "preface": first[: preface.LENGTH].hex(),
                    "message_1": first[preface.LENGTH :].hex(),
                    "message_2": second.hex(),
                    "handshake_hash": dialler.handshake_hash.hex(),
                }
            )
    return {"rules": "N-1 to N-5", "channel": "relay", "cases": cases}


def _records() -> dict[str, Any]:
    cases = []
    for cipher in (noise.AES, noise.CHACHA):
        dialler, acceptor = _ends(cipher, SALT)
        acceptor.receive_data(dialler.data_to_send())
        dialler.receive_data(acceptor.data_to_send())
        cases.append(
            {
                "cipher": cipher,
                "after": f"the handshake of handshake.json with this cipher and salt {SALT.hex()}",
                "dialler_sends": _sent(dialler),
                "acceptor_sends": _sent(acceptor),
            }
        )
    rekeyed = []
    for cipher in (noise.AES, noise.CHACHA):
        state = noise.CipherState(cipher, bytes(range(32)), rekey_every=2)
        sealed = []
        for _ in range(3):
            out = memoryview(bytearray(5 + noise.TAG))
            state.encrypt_into(b"hello", out)
            sealed.append(out.hex())
        rekeyed.append(
            {"cipher": cipher, "key": bytes(range(32)).hex(), "every": 2, "plaintext": b"hello".hex(), "sealed": sealed}
        )
    return {"rules": "W-10 to W-13, N-6", "cases": cases, "rekey": rekeyed, "rekey_every": noise.REKEY_EVERY}


def _sent(end: Channel) -> list[dict[str, str]]:
    return [
        {"plaintext": frames.encode_frame(1, body).hex(), "record": b"".join(map(bytes, end.sealed(1, body))).hex()}
        for body in (b'{"type":"beat"}', b'{"type":"bye"}')
    ]


def _flat_layout() -> dict[str, Any]:
    """Worked by hand from the rule, so that it checks the code that lays out models instead of repeating it."""
    tensors = [
        TensorSpec("conv.weight", [4, 3, 3, 3], "F32", "param"),
        TensorSpec("conv.bias", [4], "F32", "param"),
        TensorSpec("embedding", [1000, 300], "F32", "param"),
        TensorSpec("half.weight", [3, 5], "BF16", "param"),
        TensorSpec("temperature", [], "F64", "param"),
        TensorSpec("bn.running_mean", [4], "F32", "buffer"),
        TensorSpec("bn.num_batches_tracked", [], "I64", "buffer"),
        TensorSpec("mask", [3], "BOOL", "buffer"),
    ]
    offsets = [0, 432, 448, 1_200_576, 1_200_512, 1_200_448, 1_200_640, 1_200_648]
    sections = [
        Section("F32", 300_116, 0, "mean"),
        Section("F64", 1, 1_200_512, "mean"),
        Section("BF16", 15, 1_200_576, "mean"),
        Section("U8", 11, 1_200_640, "take"),
    ]
    chunks = [  # live offset, live bytes, sum offset, sum bytes
        (0, 1_048_576, 0, 1_048_576),
        (1_048_576, 151_888, 1_048_576, 151_888),
        (1_200_512, 8, 2_097_152, 8),
        (1_200_576, 30, 3_145_728, 60),
        (1_200_640, 11, 4_194_304, 11),
    ]
    return {
        "rules": "C-3",
        "chunk_bytes": CHUNK_BYTES,
        "tensors": [
            {"name": t.name, "shape": t.shape, "dtype": t.dtype, "kind": t.kind, "offset": offset}
            for t, offset in zip(tensors, offsets, strict=True)
        ],
        "sections": [{"dtype": s.dtype, "elements": s.elements, "offset": s.offset, "op": s.op} for s in sections],
        "total_bytes": 1_200_651,
        "chunks": [
            dict(zip(("live_offset", "live_bytes", "sum_offset", "sum_bytes"), chunk, strict=True)) for chunk in chunks
        ],
        "sum_bytes": 4_194_315,
    }


def _encoded_chunks() -> dict[str, Any]:
    """Worked by hand from the rule. Values and what they are taken for as runs of [value, count]."""
    scales = "0000003f" + "0000803e"  # 0.5 for the first block of 512, 0.25 for the 3 elements behind it
    return {
        "rules": "C-31",
        "cases": [
            {
                "wire": "bf16",  # the upper half, to nearest: 0x40490fdb becomes 0x4049; of a tie, the even one
                "values": [[1.0, 1], [-2.5, 1], [3.1415927410125732, 1], [1.00390625, 1], [1.01171875, 1], [0.0, 1]],
                "encoded": "803f20c04940803f823f0000",
                "decoded": [[1.0, 1], [-2.5, 1], [3.140625, 1], [1.0, 1], [1.015625, 1], [0.0, 1]],
            },
            {
                "wire": "int8",
                "values": [[63.5, 1], [-1.0, 1], [0.2, 1], [0.3, 1], [0.0, 508], [-31.75, 1], [0.5, 1], [0.1, 1]],
                "encoded": scales + "7ffe0001" + "00" * 508 + "810200",
                "decoded": [[63.5, 1], [-1.0, 1], [0.0, 1], [0.5, 1], [0.0, 508], [-31.75, 1], [0.5, 1], [0.0, 1]],
            },
        ],
    }
