"""The order in which a program runs its chains, and the checks that stop it. The decoder does the same."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from concord.spec.isa.chain import NO_BASES, Chain, Registers
from concord.spec.isa.chain_rules import check_chain, check_constants, check_state
from concord.spec.isa.instructions import (
    BASES,
    LOOP_DEPTH,
    Error,
    Instruction,
    Op,
    base_bits,
    base_number,
    register_value,
)
from concord.spec.isa.loops import Movement, Passes, Step, chain_step, moved_by, sum_step, walked
from concord.spec.isa.rules import SOURCES, Violation, check_order, check_sum, check_word
from concord.spec.machine.config import Config

KEPT = 1024  #: Most chains that are kept for another pass, which bounds memory where loops move base registers.


def check(program: list[int], config: Config, modes: list[bool] | None = None,
          constants: int = 0) -> Violation | None:
    """The first violation of a program, or None where it is legal.

    Args:
        program:   Instruction words from address 0.
        modes:     Whether each tile is in integer mode at the start; no tile is if left out.
        constants: Number of words of Dram, from address 0 up, that the program must not write.

    Raises:
        ValueError: the program is longer than the instruction buffer.
    """
    try:
        modes = list(modes or [False] * config.matrix_tiles)
        for _ in Sequencer(config, program, modes, constants).walk(repeat=False):
            pass
    except Violation as violation:
        return violation
    return None


@dataclass(slots=True)
class _Loop:
    """A loop whose passes are not all done.

    Attributes:
        body:    Address of the first instruction of the body.
        left:    Number of passes still to do, including the present one.
        state:   Registers, words of MvmQ and modes of tiles when the present pass began.
        bases:   Base registers when the present pass began.
        steps:   Steps of the present pass that depend on base registers.
        earlier: Those of the passes before it.
        first:   Whether the present pass is the first one.
    """

    body: int
    left: int
    state: tuple
    bases: Movement
    steps: list[Step | Passes] = field(default_factory=list)
    earlier: list[Step | Passes] = field(default_factory=list)
    first: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkState:
    """A position in a program outside loops, from which a walk can go on.

    Attributes:
        address:   Address of the next instruction.
        registers: Scalar registers.
        bases:     Base registers.
        held:      Number of words in MvmQ.
        modes:     Whether each tile is in integer mode.
    """

    address: int
    registers: Registers
    bases: Movement
    held: int
    modes: tuple[bool, ...]


class Sequencer:
    """Walks through a program; keeps loops, scalar and base registers, the words in MvmQ and the modes of tiles.

    Args:
        config:  The machine.
        program: Instruction words from address 0; the rest of the instruction buffer is zero.
        modes:   Whether each tile is in integer mode. The sequencer updates it when the program loads tiles.
        constants: Number of words of Dram that the program must not write.

    Attributes:
        executed: Number of instructions that the walk has executed; a chain that is refused adds none.

    Raises:
        ValueError: the program is longer than the instruction buffer.
    """

    def __init__(self, config: Config, program: list[int], modes: list[bool], constants: int = 0):
        if len(program) > config.instructions:
            raise ValueError(f"the program has {len(program)} instructions, the machine holds {config.instructions}")
        self.config, self.program, self.modes, self.constants = config, program, modes, constants
        self._instructions: dict[int, Instruction] = {}
        self._bodies: dict[int, tuple[Instruction, ...]] = {}
        self._chains: dict[tuple[int, Registers, Movement], Chain] = {}

    def walk(self, *, repeat: bool = True, start: WalkState | None = None) -> Iterator[Chain]:
        """Yield the checked chains in program order, from the start of the program to `end`.

        Args:
            repeat: Whether loops run all their passes. If not, a loop ends after a pass that changes nothing but base
                    registers; its other passes are checked in closed form.
            start:  Where the walk begins, as `at` gave it of a walk through the same words; if None, at address 0 after
                    a reset.

        Raises:
            Violation: the program stops here.
        """
        start = start or WalkState(address=0, registers=Registers.reset(self.config), bases=NO_BASES, held=0,
                                   modes=tuple(self.modes))
        self.registers, self.bases, self.held, self.executed = start.registers, start.bases, start.held, 0
        self.modes[:] = start.modes
        self._loops: list[_Loop] = []
        self._repeats = repeat
        address = start.address
        while (instruction := self._fetch(address)).op != Op.END:
            if instruction.op in SOURCES:
                chain = self._chain(address)
                self._admit(chain)
                if self._records:
                    self._note(chain_step(self.config, self._bodies[address], chain, self.bases, self.constants))
                yield chain
                address = chain.end
            elif instruction.op == Op.S_WR:
                self._write(instruction)
            elif instruction.op == Op.S_ADD:
                self._add(instruction, address)
            elif instruction.op == Op.LOOP:
                self._open(instruction, address)
            else:
                address = self._repeat(address)
            self.executed += 1
            address += 1
        if self._loops:
            raise Violation(Error.LOOP, address, "the program ends inside a loop")
        self.executed += 1

    def at(self, address: int) -> WalkState:
        """What a walk has reached, if the next instruction stands at `address` and no loop is open."""
        return WalkState(address=address, registers=self.registers, bases=self.bases, held=self.held,
                         modes=tuple(self.modes))

    @property
    def passes(self) -> tuple[int, ...]:
        """Number of the present pass of each loop, from 0 and the outermost loop on."""
        return tuple(self._instructions[loop.body - 1].a - loop.left for loop in self._loops)

    def _fetch(self, address: int, before: list[Instruction] | None = None) -> Instruction:
        """The instruction at `address`, checked against the earlier instructions of its chain."""
        if address >= self.config.instructions:
            raise Violation(Error.END, address, "the program runs off the instruction buffer")
        if address not in self._instructions:
            word = self.program[address] if address < len(self.program) else 0
            self._instructions[address] = check_word(self.config, word, address)
        check_order(self._instructions[address], before or [], address)
        return self._instructions[address]

    def _body(self, address: int) -> tuple[Instruction, ...]:
        """The instructions of the chain whose source is at `address`, with their base registers by name."""
        if address not in self._bodies:
            instructions = []
            while (instruction := self._fetch(address + len(instructions), instructions)).op != Op.END_CHAIN:
                instructions.append(instruction)
            self._bodies[address] = tuple(instructions)
        return self._bodies[address]

    def _chain(self, address: int) -> Chain:
        """The chain whose source is at `address`, checked in everything that does not depend on tiles and MvmQ."""
        body = self._body(address)
        bases = self.bases
        if bases != NO_BASES:
            used = {instruction.base for instruction in body}
            bases = tuple(value if base in used else 0 for base, value in enumerate(bases))
        key = address, self.registers, bases
        if key not in self._chains:
            if len(self._chains) == KEPT:
                self._chains.clear()
            chain = Chain.resolve(self.config, address, body, self.registers, bases)
            check_chain(self.config, chain)
            check_constants(chain, self.constants)
            self._chains[key] = chain
        return self._chains[key]

    def _write(self, instruction: Instruction) -> None:
        if instruction.mem in BASES:
            self._base(instruction, register_value(instruction))
        else:
            self.registers = self.registers.written(instruction.mem, instruction.a)

    def _base(self, instruction: Instruction, value: int) -> None:
        """Set the base register that an instruction names."""
        number = base_number(instruction)
        self.bases = (*self.bases[:number], value, *self.bases[number + 1:])

    def _add(self, instruction: Instruction, address: int) -> None:
        """Run an `s_add`."""
        before, bits = self.bases[base_number(instruction)], base_bits(self.config)
        self._base(instruction, check_sum(instruction, before, address, bits))
        if self._records:
            self._note(sum_step(instruction, before, address, bits))

    @property
    def _records(self) -> bool:
        """Whether the other passes of a loop will be checked by the steps of the present one."""
        return bool(self._loops) and not self._repeats

    def _note(self, step: Step | None) -> None:
        """Keep a step of the present pass of a loop; None depends on no base register."""
        if step:
            self._loops[-1].steps.append(step)

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
        self._loops.append(_Loop(address + 1, instruction.a, self._state(), self.bases))

    def _repeat(self, address: int) -> int:
        """Handle an `end_loop`; returns the address of the instruction before the one that runs next."""
        if not self._loops:
            raise Violation(Error.LOOP, address, "end_loop has no loop")
        loop = self._loops[-1]
        loop.left -= 1
        if not self._repeats:
            self._skip(loop)
        if loop.left == 0:
            self._loops.pop()
            if self._loops:
                self._loops[-1].steps += [*loop.earlier, *loop.steps]
            return address
        return loop.body - 1

    def _skip(self, loop: _Loop) -> None:
        """Check the other passes of a loop at once, if they differ from the one that has ended in base registers only.

        The first pass may have begun with base registers that no later one begins with, because the body sets them.
        """
        state, move = self._state(), tuple(now - then for now, then in zip(self.bases, loop.bases, strict=True))
        if not loop.left or state != loop.state or (loop.first and any(move)) or walked(loop.steps, move):
            loop.earlier += loop.steps
            loop.state, loop.bases, loop.steps, loop.first = state, self.bases, [], False
            return
        if any(move):
            passes = Passes(tuple(loop.steps), loop.left, move)
            passes.check()
            loop.steps.append(passes)
            self.bases = moved_by(self.bases, move, loop.left)
        loop.left = 0

    def _state(self) -> tuple:
        return self.registers, self.held, tuple(self.modes)
