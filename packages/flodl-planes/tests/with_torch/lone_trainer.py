"""A small model, its data, and a Trainer of it, for tests that train in a process of their own."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from flodl_planes import Trainer

STREAM = torch.Generator().manual_seed(0)
X = torch.randn(50, 4, generator=STREAM)
DATA = TensorDataset(X, X.sum(1, keepdim=True))


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 1))


def loss(model: nn.Module, batch: Any) -> torch.Tensor:
    return F.mse_loss(model(batch[0]), batch[1])


def evaluate(model: nn.Module) -> dict[str, Any]:
    return {"mse": F.mse_loss(model(X), DATA.tensors[1])}


def trainer(**changed: Any) -> Trainer:
    arguments: dict[str, Any] = {
        "model": build,
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
        "loss": loss,
        "data": DATA,
        "batch_size": 8,
        "epochs": 3,
        "seed": 5,
        "evaluate": evaluate,
        **changed,
    }
    return Trainer(**arguments)
