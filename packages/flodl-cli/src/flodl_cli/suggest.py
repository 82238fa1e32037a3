"""The word somebody probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """The closest of `known` to `word`, None when nothing is close. Case and `-`/`_` do not count."""
    import difflib

    def fold(text: str) -> str:
        return text.lower().replace("-", "_")

    folded = {fold(name): name for name in known}
    close = difflib.get_close_matches(fold(word), list(folded), n=1, cutoff=0.6)
    return folded[close[0]] if close else None
