"""The words behind a command: flags from its options, what `append:` adds, and what was typed."""

from __future__ import annotations

from flodl_cli.command import Command
from flodl_cli.node import Node


def words_behind(command: Command, typed: list[str], *, append: bool = True) -> list[str]:
    """The words that stand behind the command line of `command`.

    Flags first, then `append:`, then what was typed, so that of an option said twice the typed one is the last. Where
    `append:` has a `--` of its own, what follows it goes behind what was typed (and behind a `--` typed, if any). The
    typed words themselves are never changed nor put in another order.
    """
    added = command.append if append else []
    if "--" not in added:
        return [*flags(command.options), *added, *typed]
    cut = added.index("--")
    before, behind = added[:cut], added[cut + 1 :]
    if "--" in typed:
        cut = typed.index("--")
        return [*flags(command.options), *before, *typed[:cut], "--", *behind, *typed[cut + 1 :]]
    return [*flags(command.options), *before, *typed, "--", *behind]


def flags(options: dict[str, Node]) -> list[str]:
    """`options:` as words: `batch_size: 4` → `--batch-size 4`, true → the bare flag, false and null → nothing, a list
    joined by commas. A name that begins with `-` is taken to the letter.
    """
    words: list[str] = []
    for name, node in options.items():
        flag = name if name.startswith("-") else "--" + name.replace("_", "-")
        if node.value is True:
            words.append(flag)
        elif node.value is not None and node.value is not False:
            value = ",".join(map(_said, node.value)) if isinstance(node.value, list) else _said(node)
            words += [f"{flag}={value}"] if value.startswith("-") and flag.startswith("--") else [flag, value]
    return words


def _said(node: Node) -> str:
    if isinstance(node.value, bool):
        return "true" if node.value else "false"
    return "" if node.value is None else str(node.value)
