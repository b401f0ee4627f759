"""Overflow events of single products of integers, as the counters of a machine have them."""

import weakref
from collections.abc import Sequence

import numpy as np
from concord.golden.host.messages import bias_message, input_message, packed_message, program_message
from concord.golden.mvm.overflow import Events
from concord.sim.machines.host import Machine, machine
from concord.spec.host.registers import Counter, Status
from concord.spec.isa.assembler import assemble
from concord.spec.isa.instructions import Error
from concord.spec.machine.config import Config

TOGETHER = 4096  #: Most samples of one run of the program.
#: Counters of one product, in the order of the fields of `Events`.
COUNTED = {kind.lower(): Counter[f"OVERFLOW_{kind}"] for kind in ("PARTIAL", "PRODUCT", "OUTPUT")} | {
    f"excess_{kind.lower()}": Counter[f"EXCESS_{kind}"] for kind in ("PARTIAL", "PRODUCT", "OUTPUT")}
PROGRAM = """
    s_wr Rows, {rows}
    s_wr Columns, {columns}
    set_iterations {samples}
    v_rd NetQ
    mv_mul 0, integer{bias}
    v_wr InitialVrf, 0
    end_chain
    end
"""


def check_counts(config: Config):
    """Refuse a machine whose counters say nothing about sums one after the other.

    Raises:
        ValueError: it has no overflow counters, its weights or inputs are no integers, or an addition takes lane groups
            of several tiles.
    """
    if not config.count_overflows:
        raise ValueError("the machine has no overflow counters: take one with count_overflows, such as serial")
    if config.weights.precision or config.activations.precision:
        raise ValueError("the machine multiplies elements with exponents of their own, not integers: take another one")
    if config.tile_engines > 1 and config.groups > 1:
        raise ValueError(f"the machine adds the lane groups of {config.tile_engines} tiles at once: take one with one "
                         "tile engine, or with as many lanes as its native dimension")


class OverflowCounters:
    """The overflow counters of a machine, which multiplies one product after another for them.

    Lanes and rows that fill native tiles hold zeros. They add zero to sums that fit already, so no event is theirs.

    Args:
        machine: Any kind of machine; its memories are overwritten.

    Raises:
        ValueError: the machine has no such counters.
    """

    def __init__(self, machine: Machine):
        check_counts(machine.config)
        self.machine = machine

    @property
    def lanes(self) -> int:
        """Number of neighbouring columns that one addition takes."""
        return self.machine.config.lanes * self.machine.config.tile_engines

    def rows(self, columns: int) -> int:
        """Most rows of a product that the machine holds.

        Raises:
            ValueError: it holds not even one.
        """
        config = self.machine.config
        across = config.vectors_of(columns)
        most = min(config.operand_columns, config.matrix_tiles) * config.native_dim
        if columns > most:
            raise ValueError(f"a product has {columns} columns, and the machine counts products of up to {most}: raise "
                             "operand_columns and matrix_tiles, or let numpy count")
        words = min(config.bias_words, config.initial_vrf, config.mvmq_words)
        return min(config.matrix_tiles // across * config.native_dim, config.accumulator_rows,
                   words * config.mfu_lanes)

    def inputs(self, codes: np.ndarray) -> list[tuple[int, bytes]]:
        """The number of samples, and the message, of each part of codes[samples, columns].

        Raises:
            ValueError: a code is outside the machine's format of inputs.
        """
        config = self.machine.config
        _check("a code", codes, config.activations.lowest, config.activations.highest)
        padded = np.zeros((len(codes), config.vectors_of(codes.shape[1]) * config.native_dim), np.float16)
        padded[:, :codes.shape[1]] = codes
        parts = (padded[first:first + TOGETHER] for first in range(0, len(codes), TOGETHER))
        return [(len(part), input_message(config, part.view(np.uint16).reshape(-1, config.mfu_lanes)))
                for part in parts]

    def events(self, weights: np.ndarray, start: np.ndarray, inputs: Sequence[tuple[int, bytes]]) -> Events:
        """The events of start + weights @ codes.

        Args:
            weights: Integers[rows, columns], not more rows than `rows` allows.
            start:   Integers[rows], added last.
            inputs:  What `inputs` made of the codes.

        Raises:
            ValueError:   a weight or start value is outside the machine's formats.
            RuntimeError: the machine stopped with an error.
        """
        config, (rows, columns) = self.machine.config, weights.shape
        _check("a weight", weights, config.weights.lowest, config.weights.highest)
        _check("a start value", start, -1 << config.bias_bits - 1, (1 << config.bias_bits - 1) - 1)
        n, down, across = config.native_dim, config.vectors_of(rows), config.vectors_of(columns)
        tiles = np.zeros((down * n, across * n), np.int16)
        tiles[:rows, :columns] = weights
        tiles = tiles.reshape(down, n, across, n).swapaxes(1, 2).reshape(-1, n, n)
        biases = np.zeros((config.words_of(rows), config.mfu_lanes), np.int32)
        biases.reshape(-1)[:rows] = start
        self.machine.reset()
        self.machine.send(packed_message(config, tiles, np.zeros(tiles.shape[:2], np.int64), integer=True),
                          bias_message(config, biases))
        made = Events()
        for samples, message in inputs:
            made += self._run(PROGRAM.format(rows=rows, columns=across, samples=samples,
                                             bias=", bias 0" * bool(start.any())), message)
        return made

    def _run(self, program: str, message: bytes) -> Events:
        """Run a program on an input, and return what it counted."""
        self.machine.clear()
        self.machine.send(program_message(self.machine.config, assemble(program)))
        self.machine.start()
        self.machine.send(message)
        status, (error, address) = self.machine.run(), self.machine.error()
        if error != Error.NONE or not status & Status.DONE:
            raise RuntimeError(f"the machine did not count a product: {error.name} at instruction {address}")
        return Events(**{name: self.machine.counter(counter) for name, counter in COUNTED.items()})


def counters_of(kind: str, config: Config) -> OverflowCounters:
    """The counters of a new machine of a kind, by its name in `sim.machines.host.machine`, which closes with them."""
    made = machine(kind, config)
    found = OverflowCounters(made)
    weakref.finalize(found, made.close)
    return found


def _check(what: str, values: np.ndarray, lowest: int, highest: int):
    """Refuse integers that the machine does not hold."""
    if values.size and (values.min() < lowest or values.max() > highest):
        worst = int(values.min() if values.min() < lowest else values.max())
        raise ValueError(f"{what} of a product is {worst}, and the machine holds {lowest} to {highest}: quantise for "
                         "this machine, with --preset and without bits of your own, or let numpy count")
