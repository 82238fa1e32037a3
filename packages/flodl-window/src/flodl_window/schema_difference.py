"""Where two models part: the first tensor that differs, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from flodl_wire.plane_messages import TensorSpec


def first_difference(theirs: Sequence[TensorSpec], ours: Sequence[TensorSpec], owner: str) -> str:
    """ "layers.1.weight is F32 [20, 10] there and F32 [10, 10] at node-a"; "" when nothing differs, or when one of
    the two was never looked at.
    """
    if not theirs or not ours:
        return ""
    for new, old in zip(theirs, ours, strict=False):
        if new == old:
            continue
        if new.name == old.name:
            return f"{new.name} is {_shape(new, old)} there and {_shape(old, new)} at {owner}"
        if new.name not in {tensor.name for tensor in ours}:
            return f"it has {new.name}, {_shape(new)}, and {owner} has not"
        if old.name not in {tensor.name for tensor in theirs}:
            return f"it lacks {old.name}, {_shape(old)}, which {owner} has"
        return f"{new.name} stands where {owner} has {old.name}"
    longer = theirs if len(theirs) > len(ours) else ours
    if len(theirs) == len(ours):
        return ""
    extra = longer[min(len(theirs), len(ours))]
    if longer is theirs:
        return f"it has {extra.name}, {_shape(extra)}, and {owner} has not"
    return f"it lacks {extra.name}, {_shape(extra)}, which {owner} has"


def _shape(tensor: TensorSpec, beside: TensorSpec | None = None) -> str:
    """Dtype and shape, and what else sets it apart from `beside`."""
    text = f"{tensor.dtype} {tensor.shape}"
    if beside is not None and (tensor.dtype, tensor.shape) == (beside.dtype, beside.shape):
        text += f" (a {tensor.kind}" + (f", tied to {', '.join(tensor.ties)})" if tensor.ties else ")")
    return text
