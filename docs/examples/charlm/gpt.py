"""A small GPT over bytes: pre-norm blocks, learned positions, the output tied to the embedding."""

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.mixed = nn.Linear(width, width)
        self.before_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):  # (batch, context, width)
        batch, context, width = x.shape
        three = self.queries_keys_values(self.before_attention(x))
        query, key, value = three.view(batch, context, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.mixed(seen.transpose(1, 2).reshape(batch, context, width))
        return x + self.mlp(self.before_mlp(x))


class GPT(nn.Module):
    """Bytes (batch, context), int64, to logits of the next byte (batch, context, 256)."""

    def __init__(self, context, width=96, depth=3, heads=4):
        super().__init__()
        self.bytes = nn.Embedding(256, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.last = nn.LayerNorm(width)
        self.head = nn.Linear(width, 256, bias=False)
        nn.init.normal_(self.bytes.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.head.weight = self.bytes.weight  # tied: one tensor under two names

    def forward(self, text):
        x = self.bytes(text) + self.positions(torch.arange(text.shape[1], device=text.device))
        return self.head(self.last(self.blocks(x)))
