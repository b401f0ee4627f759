"""The order in which a program runs its chains, and the checks that stop it. The decoder does the same."""

from collections.abc import Iterator
from dataclasses import dataclass

from concord.spec.chain import Chain, Registers
from concord.spec.config import Config
from concord.spec.isa import LOOP_DEPTH, Error, Instruction, Op
from concord.spec.rules import SOURCES, Violation, check_chain, check_order, check_state, check_word


def check(program: list[int], config: Config, modes: list[bool] | None = None) -> Violation | None:
    """The first violation of a program, or None where it is legal.

    Args:
        program: Instruction words from address 0.
        modes:   Whether each tile is in integer mode at the start; no tile is if left out.

    Raises:
        ValueError: the program is longer than the instruction buffer.
    """
    try:
        for _ in Sequencer(config, program, list(modes or [False] * config.matrix_tiles)).walk(repeat=False):
            pass
    except Violation as violation:
        return violation
    return None


@dataclass(slots=True)
class _Loop:
    body: int  # Address of the first instruction of the body.
    left: int  # Number of passes still to do, including the present one.
    state: tuple  # State of the sequencer when the pass began.


class Sequencer:
    """Walks through a program; keeps loops, scalar registers, the number of words in MvmQ and the modes of tiles.

    Args:
        config:  The machine.
        program: Instruction words from address 0; the rest of the instruction buffer is zero.
        modes:   Whether each tile is in integer mode. The sequencer updates it when the program loads tiles.

    Attributes:
        executed: Number of instructions executed; a chain that is refused adds none.

    Raises:
        ValueError: the program is longer than the instruction buffer.
    """

    def __init__(self, config: Config, program: list[int], modes: list[bool]):
        if len(program) > config.instructions:
            raise ValueError(f"the program has {len(program)} instructions, the machine holds {config.instructions}")
        self.config, self.program, self.modes = config, program, modes
        self._instructions: dict[int, Instruction] = {}
        self._chains: dict[tuple[int, Registers], Chain] = {}

    def walk(self, *, repeat: bool = True) -> Iterator[Chain]:
        """Yield the checked chains in program order, from the start of the program to `end`.

        Args:
            repeat: Whether loops run all their passes. If not, a loop ends after a pass that changes no state.

        Raises:
            Violation: the program stops here.
        """
        self.registers, self.held, self.executed = Registers.reset(self.config), 0, 0
        self._loops: list[_Loop] = []
        address = 0
        while (instruction := self._fetch(address)).op != Op.END:
            if instruction.op in SOURCES:
                chain = self._chain(address)
                self._admit(chain)
                yield chain
                address = chain.end
            elif instruction.op == Op.S_WR:
                self.registers = self.registers.written(instruction.mem, instruction.a)
            elif instruction.op == Op.LOOP:
                self._open(instruction, address)
            else:
                address = self._repeat(address, repeat)
            self.executed += 1
            address += 1
        if self._loops:
            raise Violation(Error.LOOP, address, "the program ends inside a loop")
        self.executed += 1

    def _fetch(self, address: int, before: list[Instruction] | None = None) -> Instruction:
        """The instruction at `address`, checked against the earlier instructions of its chain."""
        if address >= self.config.instructions:
            raise Violation(Error.END, address, "the program runs off the instruction buffer")
        if address not in self._instructions:
            word = self.program[address] if address < len(self.program) else 0
            self._instructions[address] = check_word(self.config, word, address)
        check_order(self._instructions[address], before or [], address)
        return self._instructions[address]

    def _chain(self, address: int) -> Chain:
        """The chain whose source is at `address`, checked in everything that does not depend on tiles and MvmQ."""
        key = address, self.registers
        if key not in self._chains:
            instructions = []
            while (instruction := self._fetch(address + len(instructions), instructions)).op != Op.END_CHAIN:
                instructions.append(instruction)
            chain = Chain.resolve(self.config, address, tuple(instructions), self.registers)
            check_chain(self.config, chain)
            self._chains[key] = chain
        return self._chains[key]

    def _admit(self, chain: Chain) -> None:
        """Check a chain against the tiles and MvmQ, and update their state."""
        check_state(self.config, chain, self.modes, self.held)
        self.executed += len(chain.instructions)
        self.held += chain.pushes - chain.pops
        if chain.loads:
            tiles = chain.tiles
            self.modes[tiles.start:tiles.stop] = [bool(chain.target.integer)] * len(tiles)

    def _open(self, instruction: Instruction, address: int) -> None:
        if instruction.a == 0:
            raise Violation(Error.LOOP, address, "a loop repeats once at least")
        if len(self._loops) == LOOP_DEPTH:
            raise Violation(Error.LOOP, address, f"loops nest {LOOP_DEPTH} deep at most")
        self._loops.append(_Loop(address + 1, instruction.a, self._state()))

    def _repeat(self, address: int, repeat: bool) -> int:
        """Handle an `end_loop`; returns the address of the instruction before the one that runs next."""
        if not self._loops:
            raise Violation(Error.LOOP, address, "end_loop has no loop")
        loop = self._loops[-1]
        loop.left -= 1
        state = self._state() if not repeat else None
        if loop.left == 0 or (not repeat and state == loop.state):
            self._loops.pop()
            return address
        loop.state = state
        return loop.body - 1

    def _state(self) -> tuple:
        return self.registers, self.held, tuple(self.modes)
