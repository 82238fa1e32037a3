"""A module's state as the planes see it: which tensors there are, and how they come to lie in the live buffer.

On the processor the module's tensors become views of the buffer, so that an average written there is the model.
Optimizers, `load_state_dict`, tied weights and hooks do not notice: the tensor objects stay, their storage changes.
Some calls give a tensor new storage (`load_state_dict(assign=True)`, `p.data = …`, `.to(memory_format=…)`);
`Adopted.settle` finds them by their data pointer before each deposit and takes them in again. On a GPU the buffer is
a staging copy and the module keeps its own storage.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import torch
from torch import nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from flodl_planes.rank.flat import AVERAGED, NAMES, piece
from flodl_wire.faults import Refused
from flodl_wire.plane_messages import TensorSpec


@dataclass
class Slot:
    """One tensor of the state and every place in the module that holds it (several when weights are tied)."""

    name: str
    kind: str  # param | buffer
    tensor: torch.Tensor
    places: list[tuple[dict[str, Any], str]]  # the module's own dictionary (_parameters or _buffers) and the key in it
    ties: list[str] = field(default_factory=list)

    @property
    def spec(self) -> TensorSpec:
        return TensorSpec(self.name, list(self.tensor.shape), NAMES[self.tensor.dtype], self.kind, self.ties)


def slots_of(model: nn.Module) -> list[Slot]:
    """The tensors of `model.state_dict()`, parameters first, then persistent buffers, each once. Raises Refused for
    what cannot be averaged.

    Two names of one tensor, and two tensors on the very same storage, are one slot: whoever shared them wants them
    to stay equal.
    """
    slots: dict[object, Slot] = {}
    for kind in ("param", "buffer"):
        for name, registry, key in _entries(model, kind):
            tensor = registry[key]
            _check(name, tensor, kind)
            slot = slots.setdefault(_identity(tensor), Slot(name, kind, tensor, []))
            slot.places.append((registry, key))
            if slot.name != name:
                slot.ties.append(name)
    return list(slots.values())


def signature(tensors: Sequence[TensorSpec]) -> str:
    """sha256, as 64 hex digits, over names, shapes and dtypes in order: two ranks may average when theirs are equal."""
    return hashlib.sha256(msgspec.json.encode(list(tensors))).hexdigest()


def _entries(model: nn.Module, kind: str) -> Iterator[tuple[str, dict[str, Any], str]]:
    for prefix, module in model.named_modules(remove_duplicate=False):
        registry = module._parameters if kind == "param" else module._buffers
        passing = set() if kind == "param" else module._non_persistent_buffers_set
        for key, tensor in registry.items():
            if tensor is not None and key not in passing:
                yield (f"{prefix}.{key}" if prefix else key), registry, key


def _identity(tensor: torch.Tensor) -> object:
    if tensor.numel() == 0:
        return id(tensor)
    return (tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())


def _check(name: str, tensor: torch.Tensor, kind: str) -> None:
    if isinstance(tensor, (UninitializedParameter, UninitializedBuffer)):
        raise Refused(
            "lazy-module",
            f"cannot train a model whose {name} has no shape yet",
            "a lazy module gets its shapes from the first batch, and every rank must know them before",
            "run a batch through the model before returning it, or write the sizes out (nn.Linear, not nn.LazyLinear)",
        )
    what = f"cannot average {name}"
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise Refused(
            "bad-tensor",
            what,
            "it is sparse or quantized",
            "keep such a tensor out of the model's state (persistent=False)",
        )
    learns = kind == "param" and tensor.requires_grad
    if tensor.dtype not in AVERAGED and (learns or tensor.dtype not in NAMES):
        raise Refused(
            "bad-tensor",
            what,
            f"its dtype is {tensor.dtype}",
            "hold it as a real tensor (torch.view_as_real)"
            if tensor.is_complex()
            else "hold it as float32, bfloat16 or float16",
        )
    if tensor.device.type == "meta":
        raise Refused(
            "bad-tensor",
            what,
            "it is on the meta device and has no values",
            "give it values: model.to_empty(device='cpu')",
        )
    if kind == "buffer" and tensor.dtype in AVERAGED and not bool(torch.isfinite(tensor).all()):
        raise Refused(
            "bad-tensor",
            what,
            "it is a buffer that holds an infinity or NaN before training begins, and only finite models are averaged",
            "keep a constant such as a mask out of the model's state: register_buffer(…, persistent=False)",
        )


class Settled(Protocol):
    """A module's state and the live buffer, kept equal where it matters: before a deposit and after a round."""

    def settle(self) -> None: ...

    def refresh(self) -> None: ...


class Adopted:
    """A module whose state lies in a live buffer (processor) or is copied to and from it (GPU).

    `offsets` are bytes in `live`, one per slot, in the slots' order, each aligned to its dtype.
    """

    def __init__(
        self, slots: list[Slot], offsets: Sequence[int], live: Any, device: torch.device, *, staged: bool | None = None
    ) -> None:
        """`staged`: copy to and from the buffer; left out, that is so wherever the device is not the processor."""
        self._slots = slots
        self._staged = device.type != "cpu" if staged is None else staged
        self._device = device
        if self._staged and not isinstance(live, torch.Tensor):
            _pin(live)
        self._views = [view_of(live, slot.tensor, offset) for slot, offset in zip(slots, offsets, strict=True)]
        for slot, view in zip(slots, self._views, strict=True):
            view.copy_(slot.tensor.detach())
            if not self._staged and slot.tensor.numel():
                for registry, key in slot.places:
                    registry[key].data = view

    def settle(self) -> None:
        """Before a deposit: the buffer holds the module's state. Raises Refused when the model is no longer the one
        that began."""
        with torch.no_grad():
            for slot, view in zip(self._slots, self._views, strict=True):
                pointer = view.data_ptr()
                for registry, key in slot.places:
                    tensor = registry.get(key)
                    if (
                        tensor is None
                        or tensor.dtype != view.dtype
                        or tensor.shape != view.shape
                        or tensor.device != self._device_of(view)
                    ):
                        raise _changed(slot, tensor, view)
                    if self._staged:
                        slot.tensor = tensor
                    elif tensor.data_ptr() != pointer and tensor.numel():
                        view.copy_(tensor.detach())
                        tensor.data = view
                if self._staged:
                    view.copy_(slot.tensor.detach(), non_blocking=True)
        self._wait()

    def refresh(self) -> None:
        """After a round: the module holds what stands in the buffer. Nothing to do where it *is* the buffer."""
        if self._staged:
            with torch.no_grad():
                for slot, view in zip(self._slots, self._views, strict=True):
                    slot.tensor.detach().copy_(view, non_blocking=True)
            self._wait()

    def _device_of(self, view: torch.Tensor) -> torch.device:
        return self._device if self._staged else view.device

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def view_of(live: Any, like: torch.Tensor, offset: int) -> torch.Tensor:
    """The piece of the buffer at `offset`, contiguous, with the dtype and shape of `like`.

    Each is a storage of its own, or `torch.save(model.state_dict())` would refuse to write one storage of two dtypes.
    """
    return piece(live, like.dtype, offset, like.numel()).view(like.shape)


def _changed(slot: Slot, tensor: torch.Tensor | None, view: torch.Tensor) -> Refused:
    now = "gone" if tensor is None else f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}"
    return Refused(
        "model-changed",
        f"cannot average {slot.name}",
        f"it was {view.dtype} {list(view.shape)} when training began and is {now} now",
        "cast and reshape the model in the function given as model=; for mixed precision use torch.autocast",
    )


def _pin(live: Any) -> None:
    """Lock the buffer's pages, so that copies to and from the GPU run at the bus's rate; without it they are right,
    only slower.
    """
    if len(live) and torch.cuda.is_available():
        whole = torch.frombuffer(live, dtype=torch.uint8)
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        runtime.cudaHostRegister(whole.data_ptr(), whole.numel(), 0)
