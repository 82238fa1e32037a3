"""What is secret in an environment, a command line, a config or a line of text, and the same without it. Pure.

Three nets, each for what slips through the one before: *values* that we know to be secret (an environment variable's,
an argument's, a config key's) wherever they stand; *places* whose name says that a secret follows (``--password x``,
``token: x``, ``https://user:x@host``); *shapes* that only keys have (``ghp_…``, a PEM block, 32 random characters).
Too much is masked rather than too little: whoever misses a value can look it up at home.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

MASK = "***"
LEAST = 6  # characters of a value that is looked for everywhere; a shorter one would be found in innocent words
_WORDS = frozenset(
    (
        "password",
        "passwd",
        "passphrase",
        "pwd",
        "secret",
        "secrets",
        "token",
        "credential",
        "credentials",
        "auth",
        "authorization",
        "cookie",
        "bearer",
        "salt",
        "apikey",
    )
)
_LAST_WORDS = ("key", "keys", "pass")
_ENDINGS = ("password", "passwd", "passphrase", "secret", "token", "apikey", "accesskey", "privatekey", "secretkey")
_INNOCENT = frozenset(("false", "true", "none", "null", "default", "basic", "bearer", "token", "password", "secret"))
_SPLIT = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")

# Repeats are bounded: a line of a megabyte without a gap must not cost a megabyte at each of its characters.
_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_URL = re.compile(r"""(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,20})://(?P<user>[^\s"'<>]{0,400})@""")
_NAMED = re.compile(r"""(?P<name>[A-Za-z][\w.\-]{0,80})(?P<sep>\\?["']?\s{0,20}(?:=>|:=|[:=])\s{0,200})""")
_VALUE = re.compile(r"""\\"(?:(?!\\").)*(?:\\"|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|[^\n]*""")
_OPTION = re.compile(
    r"""(?P<name>--?[A-Za-z][\w-]{0,80})(?P<sep>["']?,?[ \t]{1,20})(?P<value>"[^"\n]*"?|'[^'\n]*'?|[^\s-][^\s]*)"""
)
_SPOKEN = re.compile(r"\b(?P<name>bearer|basic)(?P<sep>\s+)(?P<value>[^\s\"',;]+)", re.IGNORECASE)
_SHAPES = re.compile(
    r"\b(?:gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|hf_\w{16,}|sk-[\w-]{16,}|xox[a-z]-[\w-]{8,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[\w-]{30,}|eyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]+)?)"
    r"|(?<![A-Za-z0-9])[0-9a-fA-F]{32,}(?![A-Za-z0-9])"
    r"|(?<![\w+-])(?=[\w+-]*[0-9])(?=[\w+-]*[a-z])(?=[\w+-]*[A-Z])[\w+-]{32,}={0,2}"
)


def is_secret(name: str) -> bool:
    """True when something of that name is nobody else's business: ``DB_PASSWORD``, ``--api-key``, ``authToken``.

    ``max_tokens`` and ``tokenizer`` are figures and files, and a public key is public.
    """
    words = [word.lower() for word in _SPLIT.split(name) if word]
    if not words or "public" in words or name == "PWD":
        return False
    return not _WORDS.isdisjoint(words) or words[-1] in _LAST_WORDS or any(word.endswith(_ENDINGS) for word in words)


def secret_values(
    environment: Mapping[str, str] | None = None, argv: Sequence[str] = (), tree: Any = None
) -> frozenset[str]:
    """The values worth looking for wherever they may stand."""
    found: set[str] = set()
    for name, value in (environment or {}).items():
        found |= {value} if is_secret(name) else _inside(value)
    for at, word in enumerate(argv):
        name, equals, value = word.partition("=")
        before = argv[at - 1] if at else ""
        if equals and is_secret(name):
            found.add(value)
        elif before.startswith("-") and "=" not in before and is_secret(before) and not word.startswith("--"):
            found.add(word)
        else:
            found |= _inside(word)
    found |= set(_of_tree(tree, secret=False))
    return frozenset(value for value in found if len(value) >= LEAST and value.lower() not in _INNOCENT)


def _inside(text: str) -> set[str]:
    """Passwords of the addresses in `text`, and what stands behind names of secrets."""
    found = set()
    for match in _URL.finditer(text):
        found.add(match["user"].partition(":")[2])
    for match in _NAMED.finditer(text):
        if is_secret(match["name"]) and (value := _VALUE.match(text, match.end())):
            found.add(value[0].strip("\"' \t\\"))
    return found


def _of_tree(tree: Any, *, secret: bool) -> Iterable[str]:
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _of_tree(value, secret=secret or is_secret(str(key)))
    elif isinstance(tree, (list, tuple)):
        words = [word for word in tree if isinstance(word, str)]
        if len(words) == len(tree) and not secret:
            yield from secret_values(None, words)
        else:
            for value in tree:
                yield from _of_tree(value, secret=secret)
    elif isinstance(tree, str):
        yield from {tree} if secret else _inside(tree)
    elif secret and isinstance(tree, (int, float)) and not isinstance(tree, bool):
        yield str(tree)


class Mask:
    """Takes what is secret out of text. `values`: known secrets."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        spelled = {form for value in values for form in _spellings(value) if len(form) >= LEAST}
        longest_first = sorted(spelled, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if spelled else None

    def known(self, text: str) -> str:
        """`text` without the values; cheap enough for every line of every rank."""
        return self._known.sub(MASK, text) if self._known is not None else text

    def text(self, text: str) -> str:
        """`text` without values, named places and shapes."""
        text = _PEM.sub(MASK, self.known(text))
        text = _URL.sub(_masked_user, text)
        text = _SPOKEN.sub(lambda match: f"{match['name']}{match['sep']}{MASK}", text)
        text = _OPTION.sub(_masked_value, text)
        text = _named(text)
        return _SHAPES.sub(MASK, text)

    def argv(self, argv: Sequence[str]) -> list[str]:
        """A command line, word for word."""
        out: list[str] = []
        for at, word in enumerate(argv):
            before = argv[at - 1] if at else ""
            behind_name = before.startswith("-") and "=" not in before and is_secret(before)
            out.append(MASK if behind_name and not word.startswith("--") else self.text(word))
        return out

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        return {name: MASK if is_secret(name) else self.text(value) for name, value in environment.items()}

    def tree(self, tree: Any) -> Any:
        """A JSON document: values of secret keys whole, every other string by its text."""
        if isinstance(tree, Mapping):
            return {
                self.known(str(key)): MASK if is_secret(str(key)) and value else self.tree(value)
                for key, value in tree.items()
            }
        if isinstance(tree, (list, tuple)):
            if tree and all(isinstance(word, str) for word in tree):
                return self.argv(tree)
            return [self.tree(value) for value in tree]
        return self.text(tree) if isinstance(tree, str) else tree


def _spellings(value: str) -> set[str]:
    """The same secret in JSON, in a URL, in a shell's or Python's quotes."""
    in_json = (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    return {value, *in_json, quote(value), quote(value, safe=""), repr(value)[1:-1]}


def _masked_user(match: re.Match[str]) -> str:
    _, colon, _ = match["user"].partition(":")
    if not colon and match["scheme"].lower() in ("ssh", "rsync", "sshfs", "sftp", "git+ssh", "file"):
        return match[0]  # a login's name, which every command line of ours holds
    return f"{match['scheme']}://{MASK}@"


def _masked_value(match: re.Match[str]) -> str:
    return f"{match['name']}{match['sep']}{MASK}" if is_secret(match["name"]) else match[0]


def _named(text: str) -> str:
    """Behind the name of a secret everything goes, to the end of its quotes or of its line."""
    out: list[str] = []
    at = 0
    while match := _NAMED.search(text, at):
        out.append(text[at : match.end()])
        at = match.end()
        if is_secret(match["name"]) and (value := _VALUE.match(text, at)) and value[0]:
            out.append(MASK)
            at = value.end()
    return "".join(out) + text[at:]
