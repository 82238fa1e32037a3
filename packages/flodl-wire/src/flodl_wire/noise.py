"""The Noise handshake NNpsk0 (and plain NN, for its vectors), on `cryptography`'s primitives; docs/protocol.md, N
rules.

Written from the Noise Protocol Framework, revision 34: names here are its names (CipherState, SymmetricState, MixKey,
Split), so that the two can be read side by side. No sockets, no clock; randomness is only the ephemeral key, which a
test may fix.

    message 1  ->  psk, e
    message 2  <-  e, ee
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TypeAlias

from flodl_wire.faults import Broken, Refused

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
except ImportError as missing:
    raise Refused(
        "no-cryptography",
        "cannot open a sealed channel",
        f"the package cryptography cannot be loaded ({missing})",
        "pip install 'flodl-wire[seal]'",
    ) from None

Buffer: TypeAlias = bytes | bytearray | memoryview

TAG = 16
KEY = 32
MESSAGE = 48  # either handshake message with an empty payload: a public key and a tag
AES = "AESGCM"
CHACHA = "ChaChaPoly"

PSK_INFO = b"flodl psk v1"
ZERO_PSK = bytes(KEY)  # an open door: the handshake then gives secrecy and integrity, and proves nothing about who

REKEY_EVERY = 1 << 20  # records per key and direction (64 GiB): AES-GCM's bounds stay far away in a run of weeks (N-6)

_REKEY_NONCE = 2**64 - 1


def psk_of(salt: bytes | None) -> bytes:
    """The handshake's pre-shared key: HKDF-SHA256 of the 16-byte salt or token (N-2); zeros for None."""
    if salt is None:
        return ZERO_PSK
    return hkdf(b"", salt, PSK_INFO, KEY)


def hkdf(salt: bytes, secret: bytes, info: bytes, length: int) -> bytes:
    """HKDF with SHA-256 as in RFC 5869; an empty `salt` is 32 zeros, as there. `length` in bytes, 32 at most here."""
    extracted = hmac.digest(salt or bytes(32), secret, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")[:length]


class CipherState:
    """One direction's key and record counter. Not for two threads at once; the two directions share nothing."""

    def __init__(self, cipher: str, key: bytes, rekey_every: int = REKEY_EVERY) -> None:
        self._cipher = cipher
        self._rekey_every = rekey_every
        self._since_rekey = 0
        self.counter = 0
        self._install(key)

    def _install(self, key: bytes) -> None:
        self._aead: AESGCM | ChaCha20Poly1305 = AESGCM(key) if self._cipher == AES else ChaCha20Poly1305(key)
        self._order: str = (
            "big" if self._cipher == AES else "little"
        )  # the two ciphers' nonces differ in this (Noise, 12.3, 12.4)

    def _nonce(self, counter: int) -> bytes:
        return b"\0\0\0\0" + counter.to_bytes(8, "big" if self._order == "big" else "little")

    def encrypt(self, plaintext: Buffer, associated: bytes | None = None) -> bytes:
        """Ciphertext and tag; handshake payloads and tests."""
        sealed = self._aead.encrypt(self._nonce(self.counter), plaintext, associated)
        self.counter += 1
        return sealed

    def decrypt(self, ciphertext: Buffer, associated: bytes | None = None) -> bytes:
        """Raises InvalidTag, and then leaves the counter alone."""
        plaintext = self._aead.decrypt(self._nonce(self.counter), ciphertext, associated)
        self.counter += 1
        return plaintext

    def encrypt_into(self, plaintext: Buffer, out: memoryview) -> None:
        """One record: `out` is exactly 16 bytes longer than `plaintext`. Rekeys on schedule."""
        self._aead.encrypt_into(self._nonce(self.counter), plaintext, None, out)
        self._step()

    def decrypt_into(self, ciphertext: Buffer, out: memoryview) -> None:
        """One record: `out` is exactly 16 bytes shorter. On InvalidTag `out` holds garbage and the channel is dead."""
        self._aead.decrypt_into(self._nonce(self.counter), ciphertext, None, out)
        self._step()

    def _step(self) -> None:
        self.counter += 1
        self._since_rekey += 1
        if self._since_rekey == self._rekey_every:
            self._install(self._aead.encrypt(self._nonce(_REKEY_NONCE), bytes(KEY), None)[:KEY])  # Noise, 4.2: REKEY(k)
            self._since_rekey = 0


class Handshake:
    """One handshake, driven by `write` and `read` in turn; after both messages `split` gives the two directions.

    `psk=None` is the pattern NN. `ephemeral` fixes the private key of this side, for vectors only.
    """

    def __init__(
        self,
        *,
        initiator: bool,
        prologue: bytes,
        cipher: str = AES,
        psk: bytes | None = None,
        ephemeral: bytes | None = None,
    ) -> None:
        self._initiator = initiator
        self._cipher = cipher
        self._psk = psk
        self._private = X25519PrivateKey.from_private_bytes(ephemeral) if ephemeral else X25519PrivateKey.generate()
        self._key: CipherState | None = None
        self._messages = 0
        name = f"Noise_NN{'psk0' if psk is not None else ''}_25519_{cipher}_SHA256".encode()
        self.hash = name.ljust(32, b"\0") if len(name) <= 32 else hashlib.sha256(name).digest()
        self._chaining = self.hash
        self._mix_hash(prologue)

    def write(self, payload: bytes = b"") -> bytes:
        """The next message of this side."""
        first = self._first_of(writing=True)
        if first:
            self._mix_psk()
        public = self._private.public_key().public_bytes_raw()
        self._mix_public(public)
        if not first:
            self._mix_key(self._shared())
        return public + self._seal(payload)

    def read(self, message: Buffer) -> bytes:
        """The payload of the other side's message. Raises Broken when malformed, InvalidTag when the keys differ."""
        first = self._first_of(writing=False)
        if len(message) < 32:
            raise Broken("bad-handshake", "cannot open the channel", f"the handshake message has {len(message)} bytes")
        if first:
            self._mix_psk()
        public = bytes(message[:32])
        self._theirs = X25519PublicKey.from_public_bytes(public)
        self._mix_public(public)
        if not first:
            self._mix_key(self._shared())
        return self._open(bytes(message[32:]))

    def split(self, rekey_every: int = REKEY_EVERY) -> tuple[CipherState, CipherState]:
        """(for sending, for receiving) of this side."""
        ours, theirs = self._hkdf(b"")[:2]
        if not self._initiator:
            ours, theirs = theirs, ours
        return CipherState(self._cipher, ours, rekey_every), CipherState(self._cipher, theirs, rekey_every)

    def _first_of(self, *, writing: bool) -> bool:
        """Whether this is message 1; a message out of turn is a bug of the caller."""
        first = self._messages == 0
        if self._messages > 1 or first != (writing == self._initiator):
            raise RuntimeError("handshake message out of turn")
        self._messages += 1
        return first

    def _mix_hash(self, data: bytes) -> None:
        self.hash = hashlib.sha256(self.hash + data).digest()

    def _hkdf(self, secret: bytes) -> tuple[bytes, bytes, bytes]:
        """Noise's HKDF: the chaining key is the salt, no info, up to three outputs."""
        extracted = hmac.digest(self._chaining, secret, "sha256")
        one = hmac.digest(extracted, b"\x01", "sha256")
        two = hmac.digest(extracted, one + b"\x02", "sha256")
        return one, two, hmac.digest(extracted, two + b"\x03", "sha256")

    def _mix_key(self, secret: bytes) -> None:
        self._chaining, key, _ = self._hkdf(secret)
        self._key = CipherState(self._cipher, key)

    def _mix_psk(self) -> None:
        if self._psk is not None:
            self._chaining, middle, key = self._hkdf(self._psk)
            self._mix_hash(middle)
            self._key = CipherState(self._cipher, key)

    def _mix_public(self, public: bytes) -> None:
        self._mix_hash(public)
        if self._psk is not None:
            self._mix_key(public)  # Noise, 9.2: with a psk the ephemeral keys the cipher too

    def _shared(self) -> bytes:
        try:
            return self._private.exchange(self._theirs)
        except ValueError:  # an all-zero result: the other side sent a point of low order
            raise Broken("bad-handshake", "cannot open the channel", "the other side's key is degenerate") from None

    def _seal(self, payload: bytes) -> bytes:
        sealed = self._key.encrypt(payload, self.hash) if self._key else payload
        self._mix_hash(sealed)
        return sealed

    def _open(self, sealed: bytes) -> bytes:
        payload = self._key.decrypt(sealed, self.hash) if self._key else sealed
        self._mix_hash(sealed)
        return payload


__all__ = [
    "AES",
    "CHACHA",
    "MESSAGE",
    "REKEY_EVERY",
    "TAG",
    "Buffer",
    "CipherState",
    "Handshake",
    "InvalidTag",
    "psk_of",
]
