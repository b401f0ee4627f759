"""What a program does in order: its chains, or why it stops. Checker, golden machine and decoder go by this."""

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
        modes:   Of each tile, whether it holds integer mode at the start; BFP mode where left out.

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
    start: int  # Address of the body.
    left: int  # Passes still to do, the present one counted.
    state: tuple  # What the sequencer knew when the pass began.


class Sequencer:
    """Walks through a program: loops, registers, the fill of MvmQ, the modes of tiles.

    Args:
        config:  The machine.
        program: Instruction words from address 0; memory behind them is erased.
        modes:   Of each tile, whether it holds integer mode. Tiles that the program loads change here.

    Attributes:
        executed: Instructions executed; none of a chain that does not run.

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
        """The chains in program order from a fresh start, each checked; ends at `end`.

        Args:
            repeat: Pass through loops as often as they say; else a pass that changes nothing here is the last.

        Raises:
            Violation: the program goes no further.
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
        """The instruction at `address`, checked with what its chain has so far."""
        if address >= self.config.instructions:
            raise Violation(Error.END, address, "the program runs off the instruction buffer")
        if address not in self._instructions:
            word = self.program[address] if address < len(self.program) else 0
            self._instructions[address] = check_word(word, address)
        check_order(self._instructions[address], before or [], address)
        return self._instructions[address]

    def _chain(self, address: int) -> Chain:
        """The chain whose source is at `address`: all that does not depend on tiles and MvmQ is checked."""
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
        """Check a chain against tiles and MvmQ, and note what it does to them."""
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
        """Address of the last instruction before the next one, at an `end_loop`."""
        if not self._loops:
            raise Violation(Error.LOOP, address, "end_loop has no loop")
        loop = self._loops[-1]
        loop.left -= 1
        state = self._state() if not repeat else None
        if loop.left == 0 or (not repeat and state == loop.state):
            self._loops.pop()
            return address
        loop.state = state
        return loop.start - 1

    def _state(self) -> tuple:
        return self.registers, self.held, tuple(self.modes)
