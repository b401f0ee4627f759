"""Time steps of recurrent networks of random weights on small machines, beside the bound of their multipliers.

Cycles come from the machine without its numbers. They are the difference of two runs, which excludes the beginning and
the end of a program.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.firmware.timing import timed
from concord.net.cells.registry import CELLS
from concord.net.model import Model
from concord.spec.host.registers import Counter
from concord.spec.machine.config import Config
from rich.table import Table

SIZES = (64, 128, 256, 512)
STEPS = (4, 12)  #: Time steps of the two runs.
SUMS = 32  #: Rows of tiles whose sums a machine with `partial_sums` keeps.


def deep(config: Config, *, sums: int) -> Config:
    """The machine with memories for each network. VectorRf, which these networks do not need, goes with `sums`."""
    words = 4 * max(SIZES) // config.mfu_lanes
    return replace(
        config,
        matrix_tiles=8 * max(SIZES) ** 2 // config.native_dim**2,
        operand_columns=max(config.operand_columns, 2 * max(SIZES) // config.native_dim),
        accumulator_rows=max(config.accumulator_rows, 4 * max(SIZES)),
        mvmq_words=words,
        initial_vrf=4 * words,
        addsub_vrf=4 * words,
        multiply_vrf=4 * words,
        net_in=STEPS[-1] * words,
        partial_sums=sums,
        vector_rf=0 if sums else config.vector_rf,
    )


def models(config: Config, cell: str, hidden: int) -> Iterator[tuple[str, Model]]:
    """The network in integers, whose inputs arrive in steps of their codes, and in block floating point."""
    for title, make in (("integer", networks.recurrent_layer), ("blocks", networks.block_recurrent)):
        layer = make(np.random.default_rng(0), config, CELLS[cell], cell, hidden, hidden)
        yield title, networks.model([replace(layer, input_quant_scale=None) if title == "integer" else layer])


def step(model: Model, config: Config) -> tuple[float, float]:
    """Cycles of a time step, and the share of them in which all multipliers work."""
    firmware = compile_network(model, config).firmware
    few, many = (timed(firmware, steps).counters for steps in STEPS)
    cycles, beats = (many[counter] - few[counter] for counter in (Counter.CYCLES, Counter.BEATS))
    return cycles / (STEPS[1] - STEPS[0]), beats / config.tile_engines / cycles


def table(configs: dict[str, Config]) -> Table:
    """Cycles and utilisation of each cell and size, on machines by name, without and with `partial_sums`."""
    made = Table("machine", "network", "arithmetic", title="Time steps of recurrent networks", title_justify="left")
    for head in ("bound", "cycles", "utilisation", f"partial_sums = {SUMS}", "utilisation"):
        made.add_column(head, justify="right")
    for name, config in configs.items():
        multipliers = config.native_dim * config.lanes * config.tile_engines
        for cell in ("lstm", "gru", "rnn"):
            for hidden in SIZES:
                bound = 2 * len(CELLS[cell].gates) * hidden**2 / multipliers
                for title, model in models(config, cell, hidden):
                    found = [step(model, deep(config, sums=sums)) for sums in (0, SUMS)]
                    cells = [cell for cycles, share in found for cell in (f"{cycles:,.0f}", f"{share:.1%}")]
                    made.add_row(name, f"{cell} {hidden}", title, f"{bound:,.0f}", *cells)
    return made
