"""Test cases: random programs with the memory contents and the input that they run on."""

from dataclasses import dataclass, field

import numpy as np
from concord.golden.host.messages import input_message, program_message, read_message
from concord.sim.stimulus import random_values
from concord.sim.stimulus.dram_region import DramRegion
from concord.sim.stimulus.faults import fault
from concord.sim.stimulus.placement import Placement
from concord.sim.stimulus.program_generator import ProgramGenerator
from concord.spec.isa.assembler import assemble
from concord.spec.isa.check import Sequencer, check
from concord.spec.isa.disassembler import disassemble
from concord.spec.isa.instructions import Error
from concord.spec.isa.memories import ADDRESSED, Mem, depth
from concord.spec.isa.rules import Violation
from concord.spec.machine.config import Config

BUDGET = 1200  #: Largest number of words that the chains of a random program move.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Case:
    """A program, the contents of the memories before it, and the words that it takes from NetQ. It always ends.

    Attributes:
        config:    Configuration of the machine.
        program:   Instruction words.
        modes:     For each tile, whether the memory messages load it for integer mode.
        memory:    Messages that fill every memory.
        outside:   Addresses of Dram that the program uses; empty on machines without Dram.
        pool:      Words for NetQ, uint16[n, M]; the program takes the first `taken`.
        violation: The violation with which the program stops, or None.
        taken:     Number of words that the program takes from NetQ.
    """

    config: Config
    program: tuple[int, ...]
    modes: tuple[bool, ...]
    memory: tuple[bytes, ...]
    pool: np.ndarray
    outside: range = range(0)
    violation: Violation | None = field(init=False)
    taken: int = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "violation", check(list(self.program), self.config, list(self.modes)))
        object.__setattr__(self, "taken", taken(self.config, self.program, self.modes))
        if self.taken > len(self.pool):
            raise ValueError(f"the program takes {self.taken} words of NetQ, the pool has {len(self.pool)}")

    @property
    def error(self) -> Error:
        """The error with which the program stops."""
        return self.violation.error if self.violation else Error.NONE

    @property
    def text(self) -> str:
        """The program as text."""
        return disassemble(list(self.program))

    @property
    def setup(self) -> list[bytes]:
        """Messages to send before the start: they fill the memories and load the program."""
        return [*self.memory, program_message(self.config, self.program)]

    @property
    def inputs(self) -> list[bytes]:
        """INPUT messages of different lengths, with exactly the words that the program takes."""
        messages, first, size = [], 0, 1
        while first < self.taken:
            last = min(first + size, self.taken)
            messages.append(input_message(self.config, self.pool[first:last]))
            first, size = last, size % 23 + 5
        return messages

    @property
    def reads(self) -> list[bytes]:
        """READ messages for every word and entry of the chip that the host can read, and for those used of Dram."""
        sizes = {mem: depth(self.config, mem) for mem in ADDRESSED if mem != Mem.DRAM}
        reads = [read_message(self.config, mem, size) for mem, size in sizes.items() if size]
        used = self.outside
        return reads + [read_message(self.config, Mem.DRAM, len(used), used.start)] * bool(used)

    def having(self, program: list[int]) -> "Case":
        """This case with another program, which must not take more words of NetQ than the pool has."""
        return Case(config=self.config, program=tuple(program), modes=self.modes, memory=self.memory, pool=self.pool,
                    outside=self.outside)


def taken(config: Config, program: tuple[int, ...], modes: tuple[bool, ...]) -> int:
    """Number of words that a program takes from NetQ until it ends or stops."""
    count = 0
    try:
        for chain in Sequencer(config, list(program), list(modes)).walk():
            if chain.source.mem == Mem.NET_Q:
                count += chain.source_words * chain.registers.iterations
    except Violation:
        pass
    return count


def random_program(config: Config, rng: np.random.Generator, *, length: int | None = None,
                   budget: int = BUDGET, tiles: bool = False) -> Case:
    """A random legal program.

    Args:
        length: Number of attempts to append a chain or loop; random if left out.
        budget: Largest number of words that the chains of the program move.
        tiles:  Whether one part in four is a loop that makes tiles of vectors, on a machine with Dram.
    """
    modes = random_values.modes(config, rng)
    generator = ProgramGenerator(config, rng, modes, budget)
    for _ in range(int(rng.integers(3, 30)) if length is None else length):
        if tiles and rng.random() < 0.25:
            generator.extend_with_tiles()
        generator.extend()
    return _case(config, rng, modes, generator.end(), generator.placement.outside)


def written_program(config: Config, rng: np.random.Generator, text: str, *, integer: bool) -> Case:
    """A case that runs the program `text` on random contents of the memories; all tiles have one mode."""
    return _case(config, rng, [integer] * config.matrix_tiles, assemble(text), Placement(config, rng).outside)


def random_illegal(config: Config, rng: np.random.Generator, error: Error | None = None) -> Case:
    """A random program of some legal chains followed by one fault.

    Args:
        error: Error with which the program stops; a random one if left out.

    Raises:
        ValueError: no program of this machine stops with `error`.
    """
    modes = random_values.modes(config, rng)
    generator = ProgramGenerator(config, rng, modes, BUDGET // 2)
    for _ in range(int(rng.integers(0, 10))):
        generator.extend()
    return _case(config, rng, modes, fault(generator, error), generator.placement.outside)


def _case(config, rng, modes, program, outside: DramRegion | None) -> Case:
    wild = bool(rng.random() < 0.4)
    memory = random_values.memory_messages(config, rng, modes, wild=wild)
    pool = random_values.random_words(config, rng, taken(config, tuple(program), tuple(modes)), wild=wild)
    memory += [outside.message(wild=wild)] if outside else []
    return Case(config=config, program=tuple(program), modes=tuple(modes), memory=tuple(memory), pool=pool,
                outside=outside.region if outside else range(0))
