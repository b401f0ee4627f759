"""ONNX files that PyTorch writes, by its two exporters."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any


def export(path: Path, make: Callable, shape: tuple[int, ...], *, dynamo: bool, time: int | None = None):
    """Write the module that `make` gives.

    Args:
        path:   File.
        make:   Function from `torch` to a module.
        shape:  Shape of one sample, or of one time step.
        dynamo: Whether the later exporter writes it.
        time:   Number of time steps of a sequence; they stay open in the file.
    """
    import torch

    torch.manual_seed(0)
    network = make(torch).eval()
    example = torch.randn(3, *([] if time is None else [time]), *shape)
    names = {0: "batch"} | ({} if time is None else {1: "time"})
    open_axes: dict[str, Any]
    if dynamo:
        open_axes = {"dynamic_shapes": (dict.fromkeys(names, torch.export.Dim.AUTO),)}
    else:
        open_axes = {"dynamic_axes": {"x": names}, "input_names": ["x"]}
    logging.disable()
    try:
        torch.onnx.export(network, (example,), path, dynamo=dynamo, verbose=False, **open_axes)
    finally:
        logging.disable(logging.NOTSET)


def mlp(torch):
    nn = torch.nn
    return nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4),
                         nn.Softmax(dim=-1))


def normalised_mlp(torch):
    nn = torch.nn
    return nn.Sequential(nn.Linear(20, 16), nn.BatchNorm1d(16), nn.Sigmoid(), nn.Linear(16, 1))


def autoencoder(torch):
    nn = torch.nn
    return nn.Sequential(nn.Linear(20, 6), nn.ReLU(), nn.Linear(6, 20))


def lenet(torch):
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 8, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 10))


def mobile(torch):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, channels, middle):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(channels, middle, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU6(),
                nn.Conv2d(middle, middle, 3, padding=1, groups=middle, bias=False), nn.BatchNorm2d(middle), nn.ReLU6(),
                nn.Conv2d(middle, channels, 1, bias=False), nn.BatchNorm2d(channels))

        def forward(self, x):
            return x + self.body(x)

    return nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Hardswish(), Block(8, 16),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))


def inception(torch):
    nn = torch.nn

    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.three = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 5, 3, padding=1)
            self.end = nn.Linear(12, 4)

        def forward(self, x):
            pooled = nn.functional.max_pool2d(x, 3, stride=1, padding=1)
            joined = torch.cat([self.one(x), torch.relu(self.three(x)), pooled], dim=1)
            return self.end(joined.mean(dim=(2, 3)))

    return Branches()


def normalised_image(torch):
    """Constants of a normalisation ahead of the first layer, and a padding of its own."""
    nn = torch.nn

    class Normalised(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.rand(1, 3, 1, 1))
            self.conv = nn.Conv2d(3, 4, 3, stride=2)

        def forward(self, x):
            x = (x / 2 - self.mean) / 0.25
            return self.conv(nn.functional.pad(x.relu(), (1, 2, 0, 1))).flatten(1)

    return Normalised()


def one_dimension(torch):
    nn = torch.nn
    return nn.Sequential(nn.Conv1d(4, 8, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(8, 8, 3, groups=8),
                         nn.Hardsigmoid(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 3))


def between(torch, activation: str, **options):
    """Two linear layers with an activation between them."""
    nn = torch.nn
    return nn.Sequential(nn.Linear(20, 8), getattr(nn, activation)(**options), nn.Linear(8, 2))


def attention(torch):
    nn = torch.nn

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.keys, self.values = nn.Linear(20, 8), nn.Linear(20, 8)

        def forward(self, x):
            return torch.softmax(self.keys(x), -1) * self.values(x)

    return Attention()


def layer_norm(torch):
    nn = torch.nn
    return nn.Sequential(nn.Linear(20, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 2))


def rms_norm(torch):
    nn = torch.nn
    return nn.Sequential(nn.Linear(20, 8), nn.RMSNorm(8), nn.Linear(8, 2))


def unet(torch, *, transposed: bool):
    """Two levels, a skip connection, and one result for each pixel and class."""
    nn = torch.nn

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.deep = nn.Conv2d(2, 6, 3, padding=1), nn.Conv2d(6, 8, 3, padding=1)
            self.up = nn.ConvTranspose2d(8, 6, 2, stride=2) if transposed else nn.Sequential(
                nn.Upsample(scale_factor=2), nn.Conv2d(8, 6, 3, padding=1))
            self.norm, self.last, self.end = nn.BatchNorm2d(6), nn.Conv2d(12, 6, 3, padding=1), nn.Conv2d(6, 3, 1)

        def forward(self, x):
            skip = torch.relu(self.first(x))
            deep = torch.relu(self.deep(nn.functional.max_pool2d(skip, 2)))
            both = torch.cat([torch.relu(self.norm(self.up(deep))), skip], 1)
            return self.end(torch.relu(self.last(both)))

    return UNet()


def shuffle(torch):
    """Two blocks of ShuffleNet: half of the channels pass by, then all are shuffled; a gate of halves at the end."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.way = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU(),
                                     nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.Conv2d(4, 4, 1), nn.ReLU())

        def forward(self, x):
            kept, changed = x.chunk(2, 1)
            both = torch.cat([kept, self.way(changed)], 1)
            return both.unflatten(1, (2, 4)).transpose(1, 2).flatten(1, 2)

    return nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), Block(), Block(), nn.Conv2d(8, 12, 1), nn.GLU(1),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))


def hard(torch):
    """A block of MobileNetV3: hard swish, and squeeze-and-excitation whose gate is a hard sigmoid."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8)
            self.last = nn.Linear(8, 3)
            self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 4, 1), nn.ReLU(), nn.Conv2d(4, 8, 1),
                                      nn.Hardsigmoid())

        def forward(self, x):
            x = nn.functional.hardswish(self.norm(self.first(x)))
            return nn.functional.relu6(self.last((x * self.gate(x)).mean((2, 3))))

    return Block()


def pixels(torch):
    """Pixels become channels and channels become pixels again, as in networks that enlarge images."""
    nn = torch.nn
    return nn.Sequential(nn.PixelUnshuffle(2), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 12, 3, padding=1),
                         nn.PixelShuffle(2), nn.Conv2d(3, 2, 1))


def two_heads(torch):
    """Two outputs of one image."""
    nn = torch.nn

    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.kind, self.position = nn.Conv2d(2, 6, 3), nn.Linear(6, 3), nn.Linear(6, 4)

        def forward(self, x):
            features = torch.relu(self.first(x)).mean((2, 3))
            return self.kind(features), self.position(features)

    return Heads()


def decoder(torch):
    """From a small image to a larger one, as generators and autoencoders end."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(2, 8, 1), nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1), nn.BatchNorm2d(6),
        nn.ReLU(), nn.ConvTranspose2d(6, 2, 4, stride=2, padding=1), nn.Tanh())


def recurrent(torch, kind: str, *, last: str = "h", layers: int = 1, bidirectional: bool = False, **options):
    nn = torch.nn

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = getattr(nn, kind)(6, 7, layers, batch_first=True, bidirectional=bidirectional, **options)
            self.end = nn.Linear(14 if bidirectional else 7, 3)

        def forward(self, x):
            hidden, state = self.cells(x)
            state = state[0] if kind == "LSTM" else state
            if last == "h":
                return self.end(torch.cat([state[-2], state[-1]], 1) if bidirectional else state[-1])
            return self.end(hidden)[:, -1] if last == "behind" else self.end(hidden[:, -1])

    return Classifier()


_IMAGES = {"lenet": (lenet, (1, 12, 12)), "mobile": (mobile, (3, 9, 9)), "inception": (inception, (3, 7, 6)),
           "normalised_image": (normalised_image, (3, 8, 8)), "one_dimension": (one_dimension, (4, 16)),
           "decoder": (decoder, (2, 3, 4)), "two_heads": (two_heads, (2, 6, 5)),
           "shuffle": (shuffle, (3, 9, 9)), "pixels": (pixels, (2, 8, 6)),
           "hard": (hard, (3, 8, 6)),
           "unet": (partial(unet, transposed=True), (2, 8, 6)),
           "unet_nearest": (partial(unet, transposed=False), (2, 8, 6))}
_VECTORS = {"mlp": mlp, "normalised_mlp": normalised_mlp, "autoencoder": autoencoder}
_SEQUENCES = {
    "lstm": {"kind": "LSTM"}, "lstm_last": {"kind": "LSTM", "last": "behind"}, "gru": {"kind": "GRU", "layers": 2},
    "gru_bidirectional": {"kind": "GRU", "bidirectional": True, "layers": 2}, "rnn": {"kind": "RNN", "last": "step"}}

#: What writes each file, and the refusal that it must get.
ENTRIES = {
    f"torch_{name}_{'dynamo' if dynamo else 'script'}": (partial(export, make=make, shape=shape, dynamo=dynamo), "")
    for dynamo in (False, True)
    for name, (make, shape) in (_IMAGES | {name: (make, (20,)) for name, make in _VECTORS.items()}).items()
} | {
    f"torch_{name}_{'dynamo' if dynamo else 'script'}": (
        partial(export, make=partial(recurrent, **options), shape=(6,), dynamo=dynamo, time=9),
        "unrolled over its time steps" if name == "rnn" and dynamo else "")
    for dynamo in (False, True) for name, options in _SEQUENCES.items()
} | {
    f"torch_{name}": (partial(export, make=partial(between, **options), shape=(20,), dynamo=False), refusal)
    for name, options, refusal in (
        ("leaky", {"activation": "LeakyReLU"}, ""), ("silu", {"activation": "SiLU"}, ""),
        ("gelu_tanh", {"activation": "GELU", "approximate": "tanh"}, ""),
        ("gelu", {"activation": "GELU"}, ""))
} | {
    f"torch_{make.__name__}": (partial(export, make=make, shape=(20,), dynamo=dynamo), "")
    for make, dynamo in ((attention, False), (layer_norm, False), (rms_norm, True))
} | {
    "torch_last_of_both": (partial(export, make=partial(recurrent, kind="LSTM", last="step", bidirectional=True),
                                   shape=(6,), dynamo=False, time=9), "h_n in PyTorch"),
}
