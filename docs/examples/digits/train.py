"""Handwritten digits, 8×8 pixels, by a small convolutional network with BatchNorm.

    python train.py                              this process alone
    fdl --gpus cpu:2 digits                      two ranks on this box's processor
    fdl --gpus cpu:2 digits --slow 1:2.5         the same, rank 1 played by a box 2.5 times as slow
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
import torch
from slow import Slowness, add_slow_option
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from flodl_planes import Trainer, local_cluster

HERE = Path(__file__).resolve().parent


def read_digits():
    """The 1,797 digits as two datasets: every fifth one is held out, the others are for training."""
    with gzip.open(HERE / "digits.csv.gz") as file:
        rows = np.loadtxt(file, delimiter=",", dtype=np.float32)
    images = torch.from_numpy(rows[:, :64]).view(-1, 1, 8, 8) / 16
    labels = torch.from_numpy(rows[:, 64]).long()
    held_out = torch.arange(len(labels)) % 5 == 0
    return TensorDataset(images[~held_out], labels[~held_out]), TensorDataset(images[held_out], labels[held_out])


def build_model():
    def block(channels_in, channels_out):
        return nn.Sequential(
            nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels_out),
            nn.ReLU(),
        )

    return nn.Sequential(
        block(1, 96), block(96, 128), nn.MaxPool2d(2), block(128, 192), nn.MaxPool2d(2), nn.Flatten(),
        nn.Dropout(0.2), nn.Linear(192 * 2 * 2, 10),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lr", type=float, default=0.01)
    add_slow_option(parser)
    options = parser.parse_args()

    train_set, held_out = read_digits()
    slowness = Slowness(options.slow)

    def make_optimizer(parameters):
        return slowness.after(torch.optim.SGD(parameters, lr=options.lr, momentum=0.9, weight_decay=5e-4))

    def loss(model, batch):
        slowness.begin()
        images, labels = batch
        return F.cross_entropy(model(images), labels)

    def evaluate(model):
        images, labels = (tensor.to(next(model.parameters()).device) for tensor in held_out.tensors)
        return {"accuracy": (model(images).argmax(1) == labels).float().mean()}

    result = Trainer(
        model=build_model,
        optimizer=make_optimizer,
        loss=loss,
        data=train_set,
        batch_size=options.batch_size,
        epochs=options.epochs,
        seed=options.seed,
        evaluate=evaluate,
    ).run()
    if local_cluster().rank == 0:
        print(result)


if __name__ == "__main__":
    main()
