"""The proof that ``POST /start`` carries: an HMAC of the window's own nonce under the run's token, never the token.

It fires this one window and nothing else; who records it may at most repeat what the operator asked for. Docs: H-6,
H-7.
"""

from __future__ import annotations

import hashlib
import hmac

SCHEME = "Flodl"  # of the Authorization header
_CONTEXT = b"flodl start v1\n"


def proof(token_hex: str, instance: str) -> str:
    """Hex of the proof. `token_hex`: 32 hex digits; `instance`: as state.json has it."""
    return hmac.new(bytes.fromhex(token_hex), _CONTEXT + instance.encode(), hashlib.sha256).hexdigest()


def holds(authorization: str, token_hex: str, instance: str) -> bool:
    """True when an Authorization header proves the token. Compared in constant time."""
    scheme, _, given = authorization.partition(" ")
    wanted = proof(token_hex, instance).encode()
    return scheme == SCHEME and hmac.compare_digest(given.strip().encode("latin-1", "replace"), wanted)


def trusted(loopback: bool, tunneled: bool, authorization: str, token_hex: str, instance: str) -> bool:
    """Who may fire: this box (seed 001), or who proves the token. Behind tunnels that we have opened on other boxes,
    loopback says nothing about where somebody sits.
    """
    return (loopback and not tunneled) or holds(authorization, token_hex, instance)
