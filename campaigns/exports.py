"""Networks of many kinds as PyTorch exports them, each quantised and held to the bit on its machine.

Each is written as ONNX, compared with onnxruntime at import, quantised with random samples and run on golden and on
the simulated machine. `nox -s exports` prints a row for each; `-- --only lstm` runs some.
"""

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

SAMPLES = 12  #: Samples that the simulated machine runs.


@dataclass(frozen=True, kw_only=True, slots=True)
class Export:
    """A network that PyTorch exports.

    Attributes:
        make:   Function from `torch` to a module.
        shape:  Shape of one sample; a sequence has its time steps first. With an embedding it is that of the token
            numbers, and the module has the table as `table`.
        preset: The machine.
        dynamo: Whether the later exporter writes it.
    """

    make: Callable
    shape: tuple[int, ...]
    preset: str = "vision"
    dynamo: bool = False


def layer_norm(torch):
    nn = torch.nn
    return nn.Sequential(nn.Linear(20, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4))


def layer_norm_of_pixels(torch):
    nn = torch.nn

    class Normalised(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm = nn.Conv2d(2, 6, 3, padding=1), nn.LayerNorm(6)
            self.second, self.end = nn.Conv2d(6, 4, 2, stride=2), nn.Linear(16, 3)

        def forward(self, x):
            x = self.norm(self.first(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            return self.end(torch.relu(self.second(x)).flatten(1))

    return Normalised()


def rms_norm(torch):
    nn = torch.nn
    return nn.Sequential(nn.Linear(20, 16), nn.RMSNorm(16), nn.Linear(16, 4))


def gelu(torch):
    nn = torch.nn
    return nn.Sequential(nn.Linear(20, 16), nn.GELU(), nn.Linear(16, 4))


def softmax_inside(torch):
    nn = torch.nn

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.keys, self.values, self.end = nn.Linear(20, 8), nn.Linear(20, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.end(torch.softmax(self.keys(x), -1) * self.values(x))

    return Attention()


def exponential(torch):
    nn = torch.nn

    class Exponential(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.end = nn.Linear(20, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.end(torch.exp(-torch.relu(self.first(x))))

    return Exponential()


def graph_convolution(torch):
    """Two graph convolutions on a ring of eight nodes with six features each."""
    nn = torch.nn

    class GraphConvolution(nn.Module):
        def __init__(self):
            super().__init__()
            ring = torch.eye(8) + torch.roll(torch.eye(8), 1, 0) + torch.roll(torch.eye(8), -1, 0)
            self.register_buffer("adjacency", ring / 3)
            self.first, self.second, self.end = nn.Linear(6, 5), nn.Linear(5, 4), nn.Linear(32, 3)

        def forward(self, x):
            x = torch.relu(self.first(self.adjacency @ x))
            return self.end(torch.relu(self.second(self.adjacency @ x)).flatten(1))

    return GraphConvolution()


def squeeze_excite(torch):
    nn = torch.nn

    class Excited(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.end = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 4)
            self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 2, 1), nn.ReLU(), nn.Conv2d(2, 8, 1),
                                      nn.Sigmoid())

        def forward(self, x):
            x = torch.relu(self.conv(x))
            return self.end((x * self.gate(x)).mean((2, 3)))

    return Excited()


def u_net(torch):
    """Two levels, a transposed convolution up, the image of the first level beside it, three classes for each pixel."""
    nn = torch.nn

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.middle = nn.Conv2d(2, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
            self.up, self.last = nn.ConvTranspose2d(8, 8, 2, stride=2), nn.Conv2d(16, 8, 3, padding=1)
            self.end = nn.Conv2d(8, 3, 1)

        def forward(self, x):
            side = torch.relu(self.down(x))
            deep = torch.relu(self.middle(nn.functional.max_pool2d(side, 2)))
            return self.end(torch.relu(self.last(torch.cat([torch.relu(self.up(deep)), side], 1))))

    return UNet()


def embedding(torch):
    nn = torch.nn

    class Embedded(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.cells = nn.Embedding(50, 6), nn.LSTM(6, 8, batch_first=True)
            self.end = nn.Linear(8, 3)

        def forward(self, x):
            return self.end(self.cells(self.table(x))[0][:, -1])

    return Embedded()


def two_outputs(torch):
    nn = torch.nn

    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.kind, self.position = nn.Linear(20, 16), nn.Linear(16, 5), nn.Linear(16, 2)

        def forward(self, x):
            x = torch.relu(self.body(x))
            return self.kind(x), self.position(x)

    return Heads()


def upsampled(torch):
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2),
                         nn.Conv2d(8, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 3))


def each_step(torch):
    """An LSTM with an output at each time step."""
    nn = torch.nn

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.end = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 3)

        def forward(self, x):
            return self.end(self.cells(x)[0])

    return Tagger()


def both_directions_at_the_end(torch):
    """Both directions of an LSTM, read at the last time step, where the backward one has seen a single input."""
    nn = torch.nn

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.end = nn.LSTM(6, 7, batch_first=True, bidirectional=True), nn.Linear(14, 3)

        def forward(self, x):
            return self.end(self.cells(x)[0][:, -1])

    return Both()


def lstm_convolution_lstm(torch):
    nn = torch.nn

    class Sandwich(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.LSTM(6, 8, batch_first=True), nn.LSTM(5, 7, batch_first=True)
            self.conv, self.end = nn.Conv1d(8, 5, 3, padding=1), nn.Linear(7, 3)

        def forward(self, x):
            x = torch.relu(self.conv(self.first(x)[0].transpose(1, 2))).transpose(1, 2)
            return self.end(self.last(x)[0][:, -1])

    return Sandwich()


EXPORTS = {
    "layer_norm": Export(make=layer_norm, shape=(20,), preset="tiny_vector"),
    "layer_norm_of_pixels": Export(make=layer_norm_of_pixels, shape=(2, 4, 4), preset="tiny_vector"),
    "rms_norm": Export(make=rms_norm, shape=(20,), preset="tiny_vector", dynamo=True),
    "softmax_inside": Export(make=softmax_inside, shape=(20,), preset="tiny_vector"),
    "exponential": Export(make=exponential, shape=(20,), preset="tiny_vector"),
    "gelu": Export(make=gelu, shape=(20,)),
    "graph_convolution": Export(make=graph_convolution, shape=(8, 6)),
    "squeeze_excite": Export(make=squeeze_excite, shape=(3, 8, 8)),
    "u_net": Export(make=u_net, shape=(2, 8, 8)),
    "embedding": Export(make=embedding, shape=(9,)),
    "two_outputs": Export(make=two_outputs, shape=(20,)),
    "upsampled": Export(make=upsampled, shape=(2, 4, 4)),
    "each_step": Export(make=each_step, shape=(9, 6)),
    "both_directions_at_the_end": Export(make=both_directions_at_the_end, shape=(9, 6)),
    "lstm_convolution_lstm": Export(make=lstm_convolution_lstm, shape=(9, 6)),
}


def written(export: Export, path: Path) -> np.ndarray:
    """Write the ONNX file of an export, with an open number of samples; returns random samples."""
    import torch

    torch.manual_seed(0)
    network, samples = export.make(torch).eval(), torch.randn(60, *export.shape)
    if hasattr(network, "table"):
        samples = torch.randint(network.table.num_embeddings, (60, *export.shape))
    example = samples[:3]
    axes: dict[str, Any] = {"dynamic_shapes": ({0: torch.export.Dim.AUTO},)} if export.dynamo else {
        "dynamic_axes": {"x": {0: "batch"}}, "input_names": ["x"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # exporters have warnings of their own
        torch.onnx.export(network, (example,), path, dynamo=export.dynamo, verbose=False, **axes)
    return samples.numpy()


def chosen(only: str) -> dict[str, Export]:
    """The exports whose name contains a text.

    Raises:
        ValueError: there is none.
    """
    found = {name: export for name, export in EXPORTS.items() if only in name}
    if not found:
        raise ValueError(f"--only {only}: no export has this in its name; they are {', '.join(EXPORTS)}")
    return found


def main():
    """Run all exports, and end with 1 if one is refused or differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="only exports whose name contains it")
    parser.add_argument("--machine", default="library", choices=("golden", "library"))
    given, wrong = parser.parse_args(), 0
    try:
        exports = chosen(given.only)
    except ValueError as error:
        parser.error(str(error))
    shown = Table("network", "layers", "machine", "off onnxruntime", "differing bits", "cycles")
    with tempfile.TemporaryDirectory() as folder:
        for name, export in exports.items():
            row, equal = outcome(name, export, Path(folder), given.machine)
            shown.add_row(name, *row)
            wrong += not equal
    Console(width=140).print(shown)
    sys.exit(wrong > 0)


def outcome(name: str, export: Export, folder: Path, machine: str) -> tuple[tuple[str, ...], bool]:
    """The cells of an export's row, and whether all of its bits are equal."""
    import concord
    from concord.frontends.onnx.compare import difference
    from concord.frontends.onnx.read import read

    path = folder / f"{name}.onnx"
    np.savez(folder / f"{name}.npz", x=written(export, path))
    try:
        worst = difference(read(path))
        made = concord.verify(path, folder / f"{name}.npz", preset=export.preset, samples=SAMPLES, machine=machine,
                              report=folder / "report", waves=False)
    except ValueError as error:
        return (str(error), export.preset, "", "refused", ""), False
    layers = ", ".join(dict.fromkeys(layer.title for layer in made.model.quantized.layers))
    bits = "golden alone" if made.bits is None else str(made.bits)
    return (layers, export.preset, f"{worst:.1e}", bits, f"{made.cycles:,.0f}"), made.equal


if __name__ == "__main__":
    main()
