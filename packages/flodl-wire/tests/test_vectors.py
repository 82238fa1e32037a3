"""The published vectors are what this code makes, and this code takes what is published."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from vectors_folder import VECTORS

from flodl_wire import frames, message_examples, messages, noise, preface, vectors
from flodl_wire.channel import Initiator, Responder
from flodl_wire.faults import Broken, Refused
from flodl_wire.frames import FrameDecoder


def load(name: str) -> Any:
    return json.loads((VECTORS / name).read_text(encoding="utf-8"))


def test_the_published_files_are_what_this_code_makes() -> None:
    """When this fails after a change that was meant: a new version in docs/protocol.md, then `vectors --write`."""
    assert vectors.differing(VECTORS) == []


def test_a_file_that_is_missing_or_changed_is_found_and_can_be_written(tmp_path: Path) -> None:
    assert vectors.differing(tmp_path) == list(vectors.documents())
    assert [path.name for path in vectors.write(tmp_path / "new")] == list(vectors.documents())
    (tmp_path / "new" / "frames.json").write_text("{}", encoding="utf-8")
    assert vectors.differing(tmp_path / "new") == ["frames.json"]


def test_published_prefaces_are_taken_and_the_others_refused() -> None:
    published = load("preface.json")
    for case in published["taken"]:
        head = preface.parse(bytes.fromhex(case["bytes"]))
        assert (preface.KINDS[head.kind], head.keyed, head.chacha) == (case["kind"], case["keyed"], case["chacha"])
    for case in published["refused"]:
        with pytest.raises(Refused) as caught:
            preface.parse(bytes.fromhex(case["bytes"]))
        assert caught.value.code == case["code"]
    assert all(preface.is_refusal(bytes.fromhex(case["bytes"])) for case in published["refusals"])


def test_published_frames_are_taken_and_the_others_refused() -> None:
    published = load("frames.json")
    for case in published["frames"]:
        (frame,) = FrameDecoder().feed(bytes.fromhex(case["bytes"]))
        assert (frames.NAMES[frame.kind], frame.body.hex()) == (case["kind"], case["body"])
        if frame.head:
            assert frame.head._asdict() == {key: case[key] for key in ("round", "attempt", "offset")}
    for case in published["refused"]:
        with pytest.raises(Broken):
            FrameDecoder().feed(bytes.fromhex(case["bytes"]))


@pytest.mark.parametrize("case", load("handshake.json")["cases"], ids=lambda c: f"{c['cipher']} {c['salt']}")
def test_published_handshakes_and_the_records_behind_them_are_taken(case: dict[str, Any]) -> None:
    salt = bytes.fromhex(case["salt"]) if case["salt"] else None
    acceptor = Responder(lambda keyed: salt, ephemeral=bytes.fromhex(case["acceptor_ephemeral"]))
    acceptor.receive_data(bytes.fromhex(case["preface"] + case["message_1"]))
    assert acceptor.data_to_send().hex() == case["message_2"]
    dialler = Initiator(preface.RELAY, salt, case["cipher"], ephemeral=bytes.fromhex(case["dialler_ephemeral"]))
    assert dialler.data_to_send().hex() == case["preface"] + case["message_1"]
    dialler.receive_data(bytes.fromhex(case["message_2"]))
    assert dialler.handshake_hash.hex() == acceptor.handshake_hash.hex() == case["handshake_hash"]
    for records in load("records.json")["cases"] if salt else ():
        if records["cipher"] == case["cipher"]:
            for receiver, sent in ((acceptor, "dialler_sends"), (dialler, "acceptor_sends")):
                for record in records[sent]:
                    (frame,) = receiver.receive_data(bytes.fromhex(record["record"]))
                    assert frames.encode_frame(frame.kind, frame.body).hex() == record["plaintext"]


@pytest.mark.parametrize("case", load("records.json")["rekey"], ids=lambda c: c["cipher"])
def test_published_changes_of_keys_are_followed(case: dict[str, Any]) -> None:
    state = noise.CipherState(case["cipher"], bytes.fromhex(case["key"]), case["every"])
    for sealed in case["sealed"]:
        plaintext = bytearray(len(sealed) // 2 - noise.TAG)
        state.decrypt_into(bytes.fromhex(sealed), memoryview(plaintext))
        assert plaintext.hex() == case["plaintext"]


@pytest.mark.parametrize("link", message_examples.LINKS)
def test_every_message_of_every_link_is_published_and_taken(link: str) -> None:
    published = load("messages.json")["links"][link]
    union = message_examples.LINKS[link]
    assert list(published) == [member.__struct_config__.tag for member in union.__args__]
    for tag, body in published.items():
        message = messages.decode_message(json.dumps(body).encode(), union, "the vectors")
        assert type(message).__struct_config__.tag == tag
        assert json.loads(messages.encode_message(message)) == body


def test_the_published_layout_is_whole() -> None:
    """Every byte of every tensor has one place; the code that lays out models is checked against it by its tests."""
    published = load("flat_layout.json")
    widths = {"F32": 4, "F64": 8, "BF16": 2, "I64": 8, "BOOL": 1}
    spans = []
    for tensor in published["tensors"]:
        count = 1
        for size in tensor["shape"]:
            count *= size
        spans.append((tensor["offset"], tensor["offset"] + count * widths[tensor["dtype"]]))
    spans.sort()
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    assert spans[-1][1] == published["total_bytes"]
    assert sum(chunk["live_bytes"] for chunk in published["chunks"]) == sum(end - start for start, end in spans)
    assert all(section["offset"] % 64 == 0 for section in published["sections"])
