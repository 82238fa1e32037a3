"""The handshake against public vectors that nobody here wrote, and the schedule of keys behind it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from vectors_folder import VECTORS

from flodl_wire import noise
from flodl_wire.faults import Broken

CASES = json.loads((VECTORS / "noise.json").read_text())["vectors"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["protocol_name"])
def test_handshake_and_transport_agree_with_the_public_vectors(case: dict[str, Any]) -> None:
    cipher = case["protocol_name"].split("_")[3]

    def side(role: str) -> noise.Handshake:
        psks = case.get(f"{role}_psks")
        return noise.Handshake(
            initiator=role == "init",
            prologue=bytes.fromhex(case[f"{role}_prologue"]),
            cipher=cipher,
            psk=bytes.fromhex(psks[0]) if psks else None,
            ephemeral=bytes.fromhex(case[f"{role}_ephemeral"]),
        )

    dialler, acceptor = side("init"), side("resp")
    first, second, *rest = case["messages"]
    assert dialler.write(bytes.fromhex(first["payload"])).hex() == first["ciphertext"]
    assert acceptor.read(bytes.fromhex(first["ciphertext"])).hex() == first["payload"]
    assert acceptor.write(bytes.fromhex(second["payload"])).hex() == second["ciphertext"]
    assert dialler.read(bytes.fromhex(second["ciphertext"])).hex() == second["payload"]
    assert dialler.hash.hex() == acceptor.hash.hex() == case["handshake_hash"]
    down, up = dialler.split(), acceptor.split()
    for number, message in enumerate(rest):
        sender, receiver = (down, up) if number % 2 == 0 else (up, down)
        sealed = sender[0].encrypt(bytes.fromhex(message["payload"]))
        assert sealed.hex() == message["ciphertext"]
        assert receiver[1].decrypt(sealed).hex() == message["payload"]


@pytest.mark.parametrize("cipher", [noise.AES, noise.CHACHA])
def test_both_directions_change_their_key_on_schedule_and_still_understand_each_other(cipher: str) -> None:
    sender = noise.CipherState(cipher, bytes(32), rekey_every=3)
    receiver = noise.CipherState(cipher, bytes(32), rekey_every=3)
    never = noise.CipherState(cipher, bytes(32))
    for number in range(10):
        sealed, plain, same = bytearray(21), bytearray(5), bytearray(21)
        sender.encrypt_into(b"hello", memoryview(sealed))
        never.encrypt_into(b"hello", memoryview(same))
        assert (sealed == same) == (number < 3)
        receiver.decrypt_into(sealed, memoryview(plain))
        assert plain == b"hello"


def test_a_degenerate_public_key_is_refused() -> None:
    dialler = noise.Handshake(initiator=True, prologue=b"", psk=bytes(32))
    dialler.write()
    with pytest.raises(Broken, match="the other side's key is degenerate"):
        dialler.read(bytes(48))


def test_a_short_handshake_message_is_refused() -> None:
    acceptor = noise.Handshake(initiator=False, prologue=b"", psk=bytes(32))
    with pytest.raises(Broken, match="the handshake message has 31 bytes"):
        acceptor.read(bytes(31))


def test_a_message_out_of_turn_is_a_bug_of_the_caller() -> None:
    with pytest.raises(RuntimeError, match="out of turn"):
        noise.Handshake(initiator=False, prologue=b"", psk=bytes(32)).write()


def test_hkdf_is_rfc_5869() -> None:
    """Test case 1 and 3 of the RFC's appendix A, first 32 bytes."""
    one = noise.hkdf(
        bytes.fromhex("000102030405060708090a0b0c"), b"\x0b" * 22, bytes.fromhex("f0f1f2f3f4f5f6f7f8f9"), 32
    )
    assert one.hex() == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
    three = noise.hkdf(b"", b"\x0b" * 22, b"", 32)
    assert three.hex() == "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"


def test_no_salt_is_the_zero_key_and_a_salt_never_is() -> None:
    assert noise.psk_of(None) == bytes(32)
    assert noise.psk_of(bytes(16)) != bytes(32)


def test_without_cryptography_the_fault_names_the_package_to_install() -> None:
    program = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from flodl_wire import faults\n"
        "def main():\n"
        "    import flodl_wire.channel\n"
        "sys.exit(faults.guarded('flodl-agent', main))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "flodl-agent: cannot open a sealed channel: the package cryptography cannot be loaded"
    )
    assert done.stderr.endswith("fix: pip install 'flodl-wire[seal]'\n")


def test_only_channels_need_cryptography() -> None:
    modules = "faults environ config specs blob frames messages preface join_messages plane_messages state schemas"
    program = (
        "import sys; sys.modules['cryptography'] = None\nfor name in sys.argv[1:]: __import__('flodl_wire.' + name)"
    )
    subprocess.run([sys.executable, "-c", program, *modules.split()], check=True)
