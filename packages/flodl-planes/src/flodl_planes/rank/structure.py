"""Which tensors a model is made of, to notice a script that gives it others while it trains.

What is averaged and saved was decided when training began, and the optimizer's parameters too: a layer that comes later
would stay each rank's own, silently. Modules without tensors may come and go.
"""

from __future__ import annotations

from torch import nn

from flodl_planes.rank.schema import slots_of
from flodl_wire.faults import Refused

_Shape = tuple[list[nn.Module | None], list[str], list[str]]


class Structure:
    """Of `model`, as it is now. A look at all of it costs about 1 µs a module; only what differs is walked by name."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._known = {(id(registry), key) for slot in slots_of(model) for registry, key in slot.places}
        self._seen = self._look()

    def check(self) -> None:
        """Raises Refused naming the first tensor of the model's state that was not in it."""
        if all(_shape(module) == shape for module, shape in self._seen):
            return
        for slot in slots_of(self._model):
            if not any((id(registry), key) in self._known for registry, key in slot.places):
                raise Refused(
                    "model-changed",
                    f"cannot go on training with {slot.name}",
                    "it was not in the model when training began, so no average and no checkpoint would hold it",
                    "build the whole model in the function given as model=, before training",
                )
        self._seen = self._look()

    def _look(self) -> list[tuple[nn.Module, _Shape]]:
        return [(module, _shape(module)) for module in self._model.modules()]


def _shape(module: nn.Module) -> _Shape:
    """Children by identity, and the names of the tensors that are there."""
    return (
        list(module._modules.values()),
        [key for key, tensor in module._parameters.items() if tensor is not None],
        [key for key, tensor in module._buffers.items() if tensor is not None],
    )
