"""Random networks of every kind on machines of every kind: shapes and sizes that nobody has chosen."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ROOM, ImageNetworkMaker, geometry
from concord.campaigns.makers.mixed_networks import Mixed, anything
from concord.net.cells.cell import Cell
from concord.net.cells.registry import CELLS
from concord.net.layers.joins import Softmax
from concord.net.model import INPUT, Model
from concord.spec.isa.operations import activations
from concord.spec.machine.config import PRESETS, Config
from concord.spec.machine.machine_file import config_from_text
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format

#: A machine of one's own, whose dimensions are no powers of two.
OWN = """
based_on = "vision"
native_dim = 12
lanes = 6
mfu_lanes = 4
tile_engines = 2
weights = { bits = 6 }
activations = { bits = 7 }
"""
E4M3 = Format.floating(4, 3, e_min=4, e_max=4)
MACHINES = {name: PRESETS[name] for name in ("vision", "ulx3s", "speech", "tiny")} | {
    "own": config_from_text(OWN),
    "floats": replace(PRESETS["vision"], weights=E4M3, activations=E4M3, multipliers=0, acc_frac=2 * E4M3.bits - 10)}
MOST = 6  #: Layers of an image network, besides its first and last ones.
SOFTMAX_WORDS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """A network that was drawn.

    Attributes:
        name:   Its kind and seed, machine and arithmetic.
        config: The machine.
        model:  The network.
        steps:  Time steps of a sequence.
    """

    name: str
    config: Config
    model: Model
    steps: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a sample."""
        return (*[self.steps] * self.model.recurrent, self.model.inputs)


def draw(kind: str, seed: int) -> Drawn:
    """A network of a kind.

    Raises:
        ValueError: no layers of these sizes fit each other, or the machine.
    """
    rng = np.random.default_rng([seed, list(KINDS).index(kind)])
    name, block, softmax = str(rng.choice(list(MACHINES))), bool(rng.integers(2)), rng.integers(3) == 0
    config, block = MACHINES[name], block or name == "floats"
    if softmax:
        config = replace(config, softmax_words=SOFTMAX_WORDS)
    if rng.integers(4):
        config = replace(config, operand_columns=64, **ROOM)
    if rng.integers(2):  # Gates and tall products in pieces.
        config = replace(config, mvmq_words=max(int(rng.integers(1, 9)), 16 // config.mfu_lanes))
    if rng.integers(4) == 0 and config.vector_rf:  # Images strip by strip.
        config = replace(config, vector_rf=4 * int(rng.integers(8, 75)))
    model = KINDS[kind](rng, config, block)
    if softmax and 2 <= model.outputs <= SOFTMAX_WORDS * config.mfu_lanes:
        model = replace(model, layers=(*model.layers, Softmax(name="softmax", inputs=model.outputs)))
    return Drawn(name=f"{kind} {seed}, {name}, {'bfp' if block else 'integer'}", config=config, model=model,
                 steps=model.steps or int(rng.integers(3, 8)))


def dense(rng: np.random.Generator, config: Config, block: bool) -> Model:
    """Dense layers, one after the other or in branches."""
    if rng.integers(2):
        return networks.branches(rng, config, config.mfu_lanes * int(rng.integers(1, 4)), block=block)
    return networks.mlp(rng, config, [int(size) for size in rng.integers(1, 70, rng.integers(2, 6))], block=block)


def recurrent(rng: np.random.Generator, config: Config, block: bool) -> Model:
    """Recurrent layers of any cells, each in integers or in block floating point, and dense layers."""
    kind, count = rng.integers(3), int(rng.integers(1, 4))
    if kind == 0:
        return networks.both_directions(rng, config, block=block, cell=_cell(rng))
    sizes = [int(size) for size in rng.integers(1, 30, count + 1)]
    if kind == 1:
        blocks = [bool(rng.integers(2)) for _ in range(count)]
        return networks.recurrent(rng, config, sizes, block=blocks, outputs=rng.choice([None, 4]), cell=_cell(rng))
    make, behind = ((networks.block_recurrent, networks.block_dense) if block else
                    (networks.recurrent_layer, networks.dense))
    layers = [make(rng, config, _cell(rng), f"cell{k}", *sizes[k:k + 2]) for k in range(count)]
    return networks.model([*layers, behind(rng, config, "a", sizes[-1], 6), behind(rng, config, "b", 6, 6)])


def both_directions(rng: np.random.Generator, config: Config, block: bool) -> Model:
    """Layers in both directions over sequences of fixed length, one after the other."""
    made = Mixed(rng, config, (int(rng.integers(1, 12)), 1, 1), block=block, steps=int(rng.integers(2, 7)))
    at, unit = INPUT, config.native_dim if block else config.mfu_lanes
    for _ in range(int(rng.integers(1, 3))):
        cell, size = _cell(rng), unit * int(rng.integers(1, 3))
        at = made.both(made.recurrent(at, size, cell), made.recurrent(at, size, cell, reverse=True))
    at = made.recurrent(at, unit, _cell(rng), reverse=bool(rng.integers(2)))
    made.dense(made.conv(made.image(at, made.steps), 6, (1, 2), padding=(0, 0, 1, 0)), 4)
    return made.model()


def images(rng: np.random.Generator, config: Config, block: bool) -> Model:
    """Convolutions of any geometry and groups, pooling, sums and concatenations, and one of four ends."""
    channels, (rows, columns) = int(rng.integers(1, 6)), rng.integers(3, 11, 2).tolist()
    shape = channels, rows, columns
    made = ImageNetworkMaker(rng, config, shape, block=block)
    sizes = [config.native_dim, 2 * config.native_dim] if block else [3, 5, 8, 20]
    stride = tuple(rng.integers(1, 3, 2).tolist())
    found = [made.conv(INPUT, int(rng.choice(sizes)), padding=(1, 1, 1, 1), stride=stride)]
    for _ in range(int(rng.integers(1, MOST + 1))):
        layer = _LAYERS[rng.integers(len(_LAYERS))]
        found.append(layer(made, str(rng.choice(found[-3:])), int(rng.choice(sizes))))
    end, at = rng.integers(4), found[-1]
    if end == 0:
        at = made.average(at, made.shapes[at][1:])
    if end == 1:
        at = made.dense(at, 9, Activation.RELU)
    if end < 3:
        made.dense(at, 4)
    return made.model()


def mixed(rng: np.random.Generator, config: Config, block: bool) -> Model:
    """Images and recurrent layers in any order."""
    return anything(rng, config, block=block, layers=int(rng.integers(4, 10)))


#: Kinds of networks by name.
KINDS: dict[str, Callable[[np.random.Generator, Config, bool], Model]] = {
    "dense": dense, "recurrent": recurrent, "both directions": both_directions, "images": images, "mixed": mixed}


def _cell(rng) -> Cell:
    return list(CELLS.values())[rng.integers(len(CELLS))]


def _convolution(made: ImageNetworkMaker, at: str, outputs: int, groups: int = 1) -> str:
    size, options = geometry(made.rng, made.shapes[at])
    activation = Activation(made.rng.choice(activations()))
    return made.conv(at, outputs, size, groups=groups, activation=activation, **options)


def _depthwise(made: ImageNetworkMaker, at: str, outputs: int) -> str:
    return _convolution(made, at, made.shapes[at][0], made.shapes[at][0])


def _grouped(made: ImageNetworkMaker, at: str, outputs: int) -> str:
    channels = made.shapes[at][0]
    groups = int(made.rng.choice([count for count in range(1, channels + 1) if channels % count == 0]))
    return _convolution(made, at, channels if made.block else 2 * groups, groups)


def _residual(made: ImageNetworkMaker, at: str, outputs: int) -> str:
    return made.sum(at, made.conv(at, made.shapes[at][0], padding=(1, 1, 1, 1)))


def _joined(made: ImageNetworkMaker, at: str, outputs: int) -> str:
    return made.concat(at, made.conv(at, outputs, (1, 1)))


def _maximum(made: ImageNetworkMaker, at: str, outputs: int) -> str:
    size, options = geometry(made.rng, made.shapes[at])
    sides = (size[0], size[0], size[1], size[1])
    padding = tuple(min(each, side - 1) for each, side in zip(options["padding"], sides, strict=True))
    return made.maximum(at, size, stride=options["stride"], padding=padding)


def _average(made: ImageNetworkMaker, at: str, outputs: int) -> str:
    size, options = geometry(made.rng, made.shapes[at])
    return made.average(at, size, stride=options["stride"], padding=options["padding"])


_LAYERS = (_convolution, _depthwise, _grouped, _residual, _joined, _maximum, _average)
