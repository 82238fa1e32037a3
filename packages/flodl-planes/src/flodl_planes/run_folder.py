"""runs/<id>/ of a script run alone: result.json, state.json, metrics.jsonl, checkpoint.safetensors, and runs/latest
pointing at it.

In a world the launcher and the hub write these; here the Trainer does. Every file but the log of metrics is replaced
whole.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flodl_wire import environ
from flodl_wire.faults import Broken
from flodl_wire.result import EpochResult, RunResult
from flodl_wire.state import State

if TYPE_CHECKING:
    import torch


class RunFolder:
    """A new folder for one run. `id` sorts by time: 20261129-221500-3f2a."""

    def __init__(self, root: Path | None = None) -> None:
        runs = (root or Path(os.environ.get(environ.RUN_DIR) or ".")) / "runs"
        self.id = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        self.path = runs / self.id
        try:
            self.path.mkdir(parents=True)
            pointer = runs / f".latest-{self.id}"
            pointer.symlink_to(self.id)
            pointer.replace(runs / "latest")
        except OSError as error:
            raise Broken(
                "no-run-folder",
                f"cannot make {self.path}",
                error.strerror or str(error),
                f"run in a folder you may write to, or set {environ.RUN_DIR}",
            ) from None

    def write_state(self, state: State) -> None:
        _replace(self.path / "state.json", msgspec.json.encode(state))

    def write_result(self, result: RunResult) -> None:
        _replace(self.path / "result.json", msgspec.json.format(msgspec.json.encode(result), indent=2))

    def append_metrics(self, epoch: EpochResult) -> None:
        """One line per epoch, as the hub writes it in a world."""
        row = {"kind": "epoch", **msgspec.structs.asdict(epoch)}
        with (self.path / "metrics.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")

    def write_checkpoint(self, model: torch.nn.Module) -> None:
        """`model.state_dict()` as safetensors; a tied weight stands under each of its names, as `load_state_dict`
        wants it."""
        import torch
        from safetensors.torch import save

        tensors = {
            name: value.detach().to("cpu", copy=True).contiguous()
            for name, value in model.state_dict().items()
            if isinstance(value, torch.Tensor)
        }
        _replace(
            self.path / "checkpoint.safetensors", save(tensors, metadata={"format": "pt", "run": self.id}), sync=True
        )


def _replace(path: Path, data: bytes, *, sync: bool = False) -> None:
    """A reader sees the old file or the new one, never half of it."""
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(path)
