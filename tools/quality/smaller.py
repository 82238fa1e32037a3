"""The examples in small: a tenth of the time, and all that averaging may upset: convolutions, BatchNorm's buffers,
dropout, attention, tied weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tools.quality.contenders import Work
from torch import nn
from torch.nn import functional as F

import flodl_planes

CONTEXT = 32


def make(example: Any, work: Work, trainer: Mapping[str, Any]) -> None:
    """Put smaller things into an example's module, and a Trainer that is given `trainer` besides."""
    given = dict(trainer)
    if work.example == "digits":
        example.build_model = narrow_digits
        _, held_out = example.read_digits()
        given["evaluate"] = lambda model: accuracy_and_loss(model, *held_out.tensors)
    else:
        gpt = example.GPT
        example.CONTEXT = CONTEXT
        example.GPT = lambda context: gpt(context, width=32, depth=1)
    example.Trainer = lambda **own: flodl_planes.Trainer(**{**own, **given})


def narrow_digits() -> nn.Module:
    """A sixth of the channels."""

    def block(channels_in: int, channels_out: int) -> nn.Sequential:
        convolution = nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(channels_out), nn.ReLU())

    return nn.Sequential(
        block(1, 16), block(16, 24), nn.MaxPool2d(2), block(24, 32), nn.MaxPool2d(2), nn.Flatten(),
        nn.Dropout(0.2), nn.Linear(32 * 2 * 2, 10),
    )  # fmt: skip


def accuracy_and_loss(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    """An accuracy of 360 digits moves in steps of 0.0028, about the spread itself; the loss moves freely."""
    logits = model(images)
    return {"accuracy": (logits.argmax(1) == labels).float().mean(), "loss": F.cross_entropy(logits, labels)}
