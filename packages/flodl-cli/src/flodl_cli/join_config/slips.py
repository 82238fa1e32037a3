"""A word where a slip is likely: a secret that git would take, a farm whose name is nearly another's."""

from __future__ import annotations

import subprocess

from flodl_cli.join_config import standing
from flodl_cli.join_config.farm import Farm
from flodl_cli.join_config.standing import Standing


def about_git(farm: Farm) -> list[str]:
    """A word when git would take the overlay, which holds the token."""
    name = f"fdl.{farm.label}.yml"
    words = ["git", "-C", farm.root]
    try:
        inside = subprocess.run([*words, "rev-parse", "--git-dir"], capture_output=True, check=False).returncode == 0
        ignored = subprocess.run([*words, "check-ignore", "-q", name], capture_output=True, check=False).returncode == 0
    except OSError:  # no git here
        return []
    return [f"git would take {name}, which holds the token: add it to .gitignore"] if inside and not ignored else []


def about_names(farm: Farm, there: Standing) -> list[str]:
    """A word when a farm is new and others are there: its name may be a slip."""
    others = [label for label in standing.labels(farm.root) if label != farm.label]
    if there.controller is not None or not others:
        return []
    return [f"{farm.label} is a farm of its own now; this project also has {', '.join(others)}"]
