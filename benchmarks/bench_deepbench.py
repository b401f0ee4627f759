"""DeepBench's recurrent networks at batch 1, beside Brainwave: cycles of a time step, and where they went.

Weights, biases and inputs are on the chip, in memories as deep as that needs, before the first instruction. Cycles are
those from the first instruction to the last output, divided by the time steps. They come from the machine without its
numbers, whose cycles are those of the hardware.
"""

import sys
from dataclasses import dataclass, replace
from math import prod
from statistics import geometric_mean
from typing import Annotated

import numpy as np
import typer
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.firmware.layer_costs import LayerCost
from concord.firmware.timing import timed
from concord.lib.progress import Steps
from concord.net.cells.cell import Cell
from concord.net.cells.registry import CELLS
from concord.net.layers.recurrent import BlockRecurrent
from concord.net.model import Model
from concord.nnp.lib.errors import sentences
from concord.spec.host.registers import Counter
from concord.spec.machine.config import PRESETS, Config
from rich.console import Console
from rich.table import Table

MOST_WORDS = 65536  #: Most words of NetQ: the rest of an input comes while the program runs.


@dataclass(frozen=True, kw_only=True, slots=True)
class DeepBenchNetwork:
    """A network of DeepBench.

    Attributes:
        cell:      Its cell; the reset gate of a GRU comes after the product, as in cuDNN.
        hidden:    Number of elements of a hidden vector, and of an input.
        steps:     Number of time steps.
        published: Cycles of a time step on Brainwave at batch 1.
    """

    cell: Cell
    hidden: int
    steps: int
    published: int

    @property
    def name(self) -> str:
        return f"{self.cell.name} {self.hidden}"

    @property
    def products(self) -> int:
        """Number of products of two numbers in a time step."""
        return 2 * len(self.cell.gates) * self.hidden**2


#: Brainwave's cycles are transcribed, from the latencies of "A Configurable Cloud-Scale DNN Processor for Real-Time AI"
#: (ISCA 2018) at its 250 MHz. Nobody measured them here.
NETWORKS = tuple(
    DeepBenchNetwork(cell=CELLS[cell], hidden=hidden, steps=steps, published=published)
    for cell, hidden, steps, published in (
        ("gru", 2816, 750, 662),
        ("gru", 2560, 375, 662),
        ("gru", 2048, 375, 636),
        ("gru", 1536, 375, 634),
        ("gru", 1024, 1500, 632),
        ("lstm", 2048, 25, 740),
        ("lstm", 1536, 50, 725),
        ("lstm", 1024, 25, 740),
        ("lstm", 512, 25, 770),
        ("lstm", 256, 150, 708),
    )
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """Multi-function units of a machine.

    Attributes:
        title:     Head of its cycles in the table.
        registers: The attribute `mfu_registers`.
        lanes:     The attribute `mfu_lanes`.
    """

    title: str
    registers: int
    lanes: int


#: Those of the first column are beside Brainwave's 40 lanes, those of the last one beside 100.
COLUMNS = {
    "shallow": Column(title="cycles", registers=3, lanes=32),
    "ecp5": Column(title="stages as deep as an ECP5 needs", registers=0, lanes=32),
    "wide": Column(title="64 lanes", registers=3, lanes=64),
}
#: Native dimension, lanes and tile engines of machines by their number of multipliers.
SHAPES = {"65,536": (256, 256, 1), "90,112": (128, 64, 11), "98,304": (128, 128, 6), "131,072": (256, 256, 2)}


def machine(shape: tuple[int, int, int], column: Column) -> Config:
    """A machine of the published formats, with memories for each of the networks and its inputs."""
    native_dim, lanes, tile_engines = shape
    vectors = {one: -(-one.hidden // native_dim) for one in NETWORKS}  # of x, and of h
    tiles = max(2 * len(one.cell.gates) * count**2 for one, count in vectors.items())
    words = native_dim // column.lanes * max(vectors.values())
    inputs = native_dim // column.lanes * max(one.steps * count for one, count in vectors.items())
    return replace(
        PRESETS["brainwave_s10"],
        native_dim=native_dim,
        lanes=lanes,
        tile_engines=tile_engines,
        mfu_lanes=column.lanes,
        mfu_registers=column.registers,
        matrix_tiles=-(-tiles // tile_engines) * tile_engines,
        operand_columns=2 * max(vectors.values()),
        accumulator_rows=4 * words * column.lanes,
        mvmq_words=4 * words,
        initial_vrf=8 * words,
        addsub_vrf=8 * words,
        multiply_vrf=8 * words,
        net_in=min(inputs, MOST_WORDS),
        chain_queue=16,
        partial_sums=64,
    )


def model(network: DeepBenchNetwork, config: Config) -> Model:
    """The network with random weights. No mantissa is zero, so that no lane group is skipped but those of padding."""
    rng, cell, size = np.random.default_rng(0), network.cell, network.hidden
    gates, highest = len(cell.gates), config.weights.highest

    def weights() -> np.ndarray:
        drawn = rng.integers(1, highest + 1, (gates, size, size), config.weights.dtype)
        return np.where(rng.integers(2, size=drawn.shape, dtype=bool), -drawn, drawn)

    def numbers(*shape: int) -> np.ndarray:
        return rng.uniform(-1, 1, shape).astype(np.float16).view(np.uint16)

    exponents = np.zeros((gates, size, config.vectors_of(size)), np.int8)
    layer = BlockRecurrent(
        name=cell.name,
        cell=cell,
        weights_format=config.weights,
        input_format=config.activations,
        block=config.native_dim,
        input_mantissas=weights(),
        input_exponents=exponents,
        recurrent_mantissas=weights(),
        recurrent_exponents=exponents,
        bias=numbers(gates, size),
        initial={name: np.zeros(size, np.uint16) for name in cell.states},
        vectors={name: numbers(size) for name in cell.vectors},
    )
    return networks.model([layer], name=network.name)


def measured(network: DeepBenchNetwork, config: Config) -> LayerCost:
    """The counters of a run over all time steps."""
    return timed(compile_network(model(network, config), config).firmware, network.steps).whole


def row(network: DeepBenchNetwork, found: dict[str, LayerCost], multipliers: int) -> list[str]:
    """The cells of a network: of the first column all of them, of each other one its cycles and its ratio."""
    first, *others = found.values()
    bound = network.products / multipliers
    waits = (Counter.MVM_BUSY, Counter.MVM_WAIT_OPERAND, Counter.MVM_WAIT_OUTPUT)
    parts = [first.counters[counter] / network.steps for counter in waits]
    cycles = first.cycles / network.steps
    cells = [network.name, f"{network.steps}", f"{network.published}", f"{bound:.0f}", f"{cycles:.1f}"]
    cells += [f"{cycles / network.published:.2f}", f"{bound / cycles:.0%}"]
    cells += [f"{part:.0f}" for part in (*parts, cycles - sum(parts))]
    for other in others:
        cells += [f"{other.cycles / network.steps:.1f}", f"{other.cycles / network.steps / network.published:.2f}"]
    return cells


def table(title: str, shape: tuple[int, int, int], columns: list[str], chosen: list[DeepBenchNetwork]) -> Table:
    """The table of a machine, with the geometric means of the ratios."""
    steps, found = Steps(Console(stderr=True), len(columns) * len(chosen)), {network: {} for network in chosen}
    for name in columns:
        config = machine(shape, COLUMNS[name])
        for network in chosen:
            with steps.step(f"{title} multipliers, {name}: {network.name}"):
                found[network][name] = measured(network, config)
    sizes = " x ".join(map(str, shape))
    made = Table("network", title=f"cycles of a time step with {title} multipliers ({sizes})", title_justify="left")
    heads = ["steps", "Brainwave (transcribed)", "bound", COLUMNS[columns[0]].title, "ratio", "utilisation"]
    heads += ["products", "wait for h", "wait for room", "no product"]
    for name in columns[1:]:
        heads += [COLUMNS[name].title, "ratio"]
    for head in heads:
        made.add_column(head, justify="right")
    for network, costs in found.items():
        made.add_row(*row(network, costs, prod(shape)), end_section=network is chosen[-1])
    means = [
        geometric_mean([costs[name].cycles / network.steps / network.published for network, costs in found.items()])
        for name in columns
    ]
    cells = ["geometric mean", *[""] * 4, f"{means[0]:.3f}", *[""] * 5]
    made.add_row(*cells, *(cell for mean in means[1:] for cell in ("", f"{mean:.3f}")))
    return made


@sentences
def main(
    multipliers: Annotated[str, typer.Option(help=f"One of {'; '.join(SHAPES)}; all by default.")] = "",
    column: Annotated[str, typer.Option(help=f"One of {', '.join(COLUMNS)}; all by default.")] = "",
    network: Annotated[str, typer.Option(help="A network, such as 'lstm 256'; all by default.")] = "",
) -> None:
    """Print a table for each machine."""
    for chosen, known in ((multipliers, SHAPES), (column, COLUMNS), (network, [one.name for one in NETWORKS])):
        if chosen and chosen not in known:
            raise ValueError(f"there is no {chosen!r}: choose one of {'; '.join(known)}")
    console = Console(width=None if sys.stdout.isatty() else 180)
    for title in [multipliers] if multipliers else SHAPES:
        networks_ = [one for one in NETWORKS if network in ("", one.name)]
        console.print(table(title, SHAPES[title], [column] if column else list(COLUMNS), networks_))


if __name__ == "__main__":
    typer.run(main)
