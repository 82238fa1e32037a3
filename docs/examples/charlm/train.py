"""A small GPT learns the source text of Python's standard library; measured in bits per byte on files it never saw.

    python train.py                              this process alone
    fdl --gpus cpu:2 charlm                      two ranks on this box's processor
    fdl --gpus cpu:2 charlm --slow 1:4           the same, rank 1 played by a box 4 times as slow

The loop is written out here, to show where a script of your own has its say: clipping, schedules, logging.
"""

import argparse
import math
import time

import torch
from gpt import GPT
from slow import Slowness, add_slow_option
from text import read_library
from torch.nn import functional as F

from flodl_planes import Trainer

CONTEXT = 96


def mean_loss(model, batch):
    """Nats per byte."""
    text, following = batch
    return F.cross_entropy(model(text).flatten(0, 1), following.flatten())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--kilobytes", type=int, default=600, help="how much text to learn from, at most")
    add_slow_option(parser)
    options = parser.parse_args()
    train_set, held_out = read_library(CONTEXT, options.kilobytes)
    slowness = Slowness(options.slow)

    def evaluate(model):
        device = next(model.parameters()).device
        losses = [
            mean_loss(model, [part.to(device) for part in batch]) * len(batch[0])
            for batch in torch.utils.data.DataLoader(held_out, batch_size=64)
        ]
        return {"bits_per_byte": torch.stack(losses).sum() / len(held_out) / math.log(2)}

    began = time.perf_counter()
    with Trainer(
        model=lambda: GPT(CONTEXT),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=options.lr, betas=(0.9, 0.95)),
        data=train_set,
        batch_size=options.batch_size,
        epochs=options.epochs,
        seed=options.seed,
        evaluate=evaluate,
    ) as t:
        for epoch in t.epochs():
            for batch in t.batches():
                slowness.begin()
                t.backward(mean_loss(t.model, batch))
                torch.nn.utils.clip_grad_norm_(t.model.parameters(), 1.0)
                t.step()
                slowness.end()
            print(f"rank {t.rank}: epoch {epoch + 1} done after {time.perf_counter() - began:.0f} s")
    if t.rank == 0:
        print(t.result)


if __name__ == "__main__":
    main()
