"""Transformers of PyTorch, written in the ways in which people write them, and their ONNX files."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from concord.campaigns.zoo.from_torch import export


def heads(torch, way: str, width: int = 32, count: int = 2, positions: int = 16, *, causal: bool = False):
    """Self-attention, written by hand.

    Args:
        torch:     The package.
        way:       "fused": one layer makes queries, keys and values, and a function of PyTorch does the rest;
            "spelled": the same spelled out, with masked scores that are minus infinity; "separate": three layers, and
            a mask that is added.
        width:     Channels of a position.
        count:     Number of heads.
        positions: Number of positions.
        causal:    Whether each position sees itself and those before it.
    """
    nn = torch.nn

    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            parts = 3 if way == "separate" else 1
            self.entering = nn.ModuleList(nn.Linear(width, 3 * width // parts) for _ in range(parts))
            self.leaving = nn.Linear(width, width)
            self.register_buffer("seen", torch.tril(torch.ones(positions, positions)).view(1, 1, positions, positions)
                                 if causal else torch.ones(1, 1, positions, positions))

        def forward(self, x):
            samples, tokens, _ = x.shape
            made = [part for layer in self.entering for part in layer(x).split(width, dim=-1)]
            queries, keys, values = (one.view(samples, tokens, count, width // count).transpose(1, 2) for one in made)
            if way == "fused":
                y = nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=causal)
            else:
                scores = queries @ keys.transpose(-2, -1) / (width // count) ** 0.5
                if way == "spelled":
                    scores = scores.masked_fill(self.seen == 0, float("-inf"))
                else:
                    scores = scores + (1 - self.seen) * torch.finfo(torch.float32).min
                y = torch.softmax(scores, -1) @ values
            return self.leaving(y.transpose(1, 2).reshape(samples, tokens, width))

    return Heads()


def block(torch, way: str, width: int = 32, count: int = 2, positions: int = 16, *, causal: bool = False,
          wide: int = 2):
    """A block with the normalisations ahead of attention and of two dense layers with a GELU between; see `heads`."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.heads = heads(torch, way, width, count, positions, causal=causal)
            self.dense = nn.Sequential(nn.Linear(width, wide * width), nn.GELU(), nn.Linear(wide * width, width))

        def forward(self, x):
            x = x + self.heads(self.first(x))
            return x + self.dense(self.second(x))

    return Block()


def vision(torch, way: str = "fused", width: int = 32, count: int = 2, depth: int = 2, size: int = 8, patch: int = 2,
           classes: int = 10, wide: int = 2):
    """A vision transformer of square images with one channel, which ends with the mean of all positions."""
    nn = torch.nn

    class Vision(nn.Module):
        def __init__(self):
            super().__init__()
            positions = (size // patch) ** 2
            self.patches = nn.Conv2d(1, width, patch, stride=patch)
            self.positions = nn.Parameter(0.3 * torch.randn(1, positions, width))
            self.blocks = nn.Sequential(*(block(torch, way, width, count, positions, wide=wide) for _ in range(depth)))
            self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, classes)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2) + self.positions
            return self.scores(self.norm(self.blocks(x)).mean(1))

    return Vision()


def decoder(torch, way: str = "spelled", width: int = 32, count: int = 2, positions: int = 12, outputs: int = 7):
    """A block of a language model behind embeddings of positions, with scores at each position."""
    nn = torch.nn

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.positions = nn.Parameter(0.3 * torch.randn(1, positions, width))
            self.block = block(torch, way, width, count, positions, causal=True)
            self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, outputs)

        def forward(self, x):
            return self.scores(self.norm(self.block(x + self.positions)))

    return Decoder()


def multihead(torch):
    """PyTorch's own attention."""
    nn = torch.nn

    class Multihead(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.MultiheadAttention(32, 4, batch_first=True)

        def forward(self, x):
            return self.heads(x, x, x, need_weights=False)[0]

    return Multihead()


def encoder(torch):
    """PyTorch's own layer, with the normalisations behind the sums."""
    return torch.nn.TransformerEncoderLayer(32, 2, 64, batch_first=True, activation="gelu")


def class_token(torch):
    """A class token, which is a constant ahead of the other positions."""
    nn = torch.nn

    class Token(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.block = nn.Parameter(torch.randn(1, 1, 32)), block(torch, "fused", positions=17)
            self.scores = nn.Linear(32, 5)

        def forward(self, x):
            return self.scores(self.block(torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1))[:, 0])

    return Token()


def unscaled(torch):
    """A product of two computed tensors that is no attention."""
    nn = torch.nn

    class Unscaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.queries, self.keys = nn.Linear(32, 8), nn.Linear(32, 8)

        def forward(self, x):
            return torch.relu(self.queries(x) @ self.keys(x).transpose(1, 2)) @ x

    return Unscaled()


def written(path: Path, *, make: Callable, shape: tuple[int, ...], dynamo: bool):
    """Write a module as `export` does, without the kernels of PyTorch that only run and cannot be written."""
    import torch

    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        export(path, make, shape, dynamo=dynamo)
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


_SEQUENCE, _REFUSED = (16, 32), "which are imported as an attention only"
_MAKERS: dict[str, tuple[Callable, tuple[int, ...], str]] = {
    "heads_fused": (partial(heads, way="fused", causal=True), _SEQUENCE, ""),
    "heads_separate": (partial(heads, way="separate"), _SEQUENCE, ""),
    "multihead": (multihead, _SEQUENCE, ""), "encoder": (encoder, _SEQUENCE, ""),
    "vision": (vision, (1, 8, 8), ""), "decoder": (decoder, (12, 32), ""),
    "class_token": (class_token, _SEQUENCE, ""),
    "unscaled": (unscaled, _SEQUENCE, _REFUSED)}
#: Entries of the zoo; the exporter "script" of PyTorch 2.13 does not write its layer of encoders.
ENTRIES = {
    f"torch_{name}_{'dynamo' if dynamo else 'script'}": (
        partial(written, make=make, shape=shape, dynamo=dynamo), refusal)
    for name, (make, shape, refusal) in _MAKERS.items() for dynamo in (False, True) if dynamo or name != "encoder"}
