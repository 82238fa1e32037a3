"""The source text of the running Python's standard library, as windows of bytes to learn from."""

import sysconfig
from pathlib import Path

import torch
from torch.utils.data import Dataset

HELD_OUT = 12  # every 12th file is kept for measuring


class Windows(Dataset):
    """Sample i is the i-th window of `context` bytes and the byte that follows each: two int64 tensors of shape
    (context,)."""

    def __init__(self, text, context):
        self.text = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self.context = context

    def __len__(self):
        return (len(self.text) - 1) // self.context

    def __getitem__(self, index):
        if not 0 <= index < len(self):
            raise IndexError(index)
        start = index * self.context
        window = self.text[start : start + self.context + 1].long()
        return window[:-1], window[1:]


def read_library(context, kilobytes):
    """(train, held out): whole files on one side or the other; `kilobytes` of the first, a twelfth as much of the other
    (8 at least, or there would be nothing to measure).
    """
    folder = Path(sysconfig.get_path("stdlib"))
    files = sorted(folder.glob("*.py"))
    if not files:
        raise SystemExit(f"cannot read the standard library: no *.py in {folder}\nfix: use a Python that has them")
    texts = [file.read_bytes() for file in files]
    held_out = b"".join(texts[::HELD_OUT])
    train = b"".join(text for number, text in enumerate(texts) if number % HELD_OUT)
    return Windows(train[: kilobytes * 1000], context), Windows(held_out[: max(8000, kilobytes * 80)], context)
