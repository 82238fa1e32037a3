"""What training holds besides the model, as tensors and JSON in one safetensors file; and back. Nothing is pickled.

A *tree* is made of dicts, lists, tuples, tensors, arrays, numbers, strings, booleans and None, as ``state_dict()`` of
optimizers and schedulers gives them. What is none of these is left out and named: it is not worth a run.
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import torch

from flodl_planes.plane.segment import Segment
from flodl_planes.rank.flat import DTYPES, NAMES
from flodl_planes.records import tensor_file
from flodl_wire.faults import Broken

KEY = "tree"


def pack(tree: Any) -> tuple[Segment, list[str]]:
    """The file in shared memory of its own, and the paths of what had to be left out."""
    packer = _Packer()
    text = json.dumps(packer.take(tree, ""), allow_nan=True)
    listed = [(name, NAMES[tensor.dtype], list(tensor.shape)) for name, tensor in packer.tensors.items()]
    header = tensor_file.write_header(listed, {KEY: text})
    sizes = [tensor.numel() * tensor.element_size() for tensor in packer.tensors.values()]
    segment = Segment.create("state", len(header) + sum(sizes))
    view = segment.buffer
    view[: len(header)] = header
    at = len(header)
    for tensor, nbytes in zip(packer.tensors.values(), sizes, strict=True):
        if nbytes:
            raw = torch.frombuffer(view, dtype=torch.uint8, count=nbytes, offset=at)
            raw.copy_(tensor.detach().contiguous().reshape(-1).view(torch.uint8))  # off the GPU, too
        at += nbytes
    return segment, packer.left_out


def unpack(data: memoryview) -> Any:
    """The tree in such a file; its tensors are on the processor and its own. Raises Broken (bad-file)."""
    memory = os.memfd_create("flodl-state", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(memory), "wb") as file:
            file.write(data[: 8 + int.from_bytes(data[:8], "little")])
        os.ftruncate(memory, len(data))
        header = tensor_file.read_header(memory, "the state beside the checkpoint")
    finally:
        os.close(memory)
    try:
        tree = json.loads(header.metadata[KEY])
        tensors = {}
        for name, entry in header.entries.items():
            start = header.data + entry.start
            raw = bytearray(data[start : start + entry.nbytes])
            kind = DTYPES[entry.dtype]
            flat = torch.frombuffer(raw, dtype=kind) if raw else torch.empty(0, dtype=kind)
            tensors[name] = flat.view(entry.shape)
        return _put_together(tree, tensors)
    except (KeyError, ValueError, TypeError, RuntimeError) as err:
        why = f"{type(err).__name__}: {err}"
        raise Broken("bad-file", "cannot use the state beside the checkpoint", why) from None


class _Packer:
    """JSON has no tensors, tuples, arrays or keys that are numbers: those become {"~": what, …}."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.left_out: list[str] = []

    def take(self, value: Any, path: str) -> Any:
        if isinstance(value, torch.Tensor):
            name = f"{len(self.tensors)}{path}"
            if value.dtype not in NAMES or value.layout is not torch.strided:
                self.left_out.append(path[1:])
                return None
            self.tensors[name] = value
            return {"~": "tensor", "name": name}
        if isinstance(value, np.ndarray):
            inner = self.take(torch.from_numpy(np.ascontiguousarray(value)).clone(), path)
            return {"~": "array", "of": inner}
        if isinstance(value, np.generic):
            return self.take(value.item(), path)
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, (list, tuple)):
            items = [self.take(item, f"{path}.{number}") for number, item in enumerate(value)]
            return items if isinstance(value, list) else {"~": "tuple", "items": items}
        if isinstance(value, dict):
            pairs = []
            for key, item in value.items():
                if not isinstance(key, (str, int)):
                    self.left_out.append(f"{path[1:]}.{key!r}")
                    continue
                pairs.append([key, self.take(item, f"{path}.{key}")])
            return {"~": "dict", "pairs": pairs}
        self.left_out.append(path[1:])
        return None


def _put_together(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, list):
        return [_put_together(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value["~"]
    if kind == "tensor":
        return tensors[value["name"]]
    if kind == "array":
        return tensors[value["of"]["name"]].numpy()
    if kind == "tuple":
        return tuple(_put_together(item, tensors) for item in value["items"])
    return {key: _put_together(item, tensors) for key, item in value["pairs"]}
