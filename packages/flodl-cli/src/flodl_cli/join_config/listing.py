"""`fdl join-config --list`: the farms of a project."""

from __future__ import annotations

import json
import os
import time

from flodl_cli.join_config import project, standing
from flodl_cli.join_config.report import age
from flodl_wire.faults import Fault, printable


def listing(*, as_json: bool) -> str:
    """One line a farm; one that cannot be read says why in its line."""
    root = project.root_of_project()
    rows: list[dict[str, object]] = []
    for label in standing.labels(root):
        try:
            found = standing.read(root, label)
        except Fault as fault:
            rows.append({"label": label, "error": str(fault)})
            continue
        rows.append(
            {
                "label": label,
                "door": found.door,
                "controller": str(found.controller),
                "key_s": round(time.time() - found.key_made, 1) if found.pair else None,
                "overlay": os.path.relpath(found.overlay_path, root) if found.overlay else None,
                "cloud_init": found.cloud_init,
            }
        )
    if as_json:
        return json.dumps({"farms": rows})
    if not rows:
        return "no farms in this project; `fdl join-config LABEL` sets one up"
    return printable("\n".join(_row(row) for row in rows))


def _row(row: dict[str, object]) -> str:
    if "error" in row:
        return f"{row['label']}: {row['error']}"
    seconds = row["key_s"]
    key = f"key {age(seconds)} old" if isinstance(seconds, float) else "no key"
    overlay = row["overlay"] or "no overlay: `fdl join-config` again writes it"
    return f"{row['label']}: door {row['door']} at {row['controller']}, {key}, {overlay}"
