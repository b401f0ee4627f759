"""Collects a program, one chain at a time, as instruction words and as text."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from concord.firmware.firmware import Section
from concord.spec.isa.disassembler import disassemble_word
from concord.spec.isa.instructions import BASES, FIELDS, Instruction, Op, Reg, encode
from concord.spec.isa.memories import Mem


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """Some words of a vector memory, or a queue.

    Attributes:
        mem:     Memory or queue.
        address: Address of the first word; 0 in a queue.
        words:   Number of words.
    """

    mem: Mem
    address: int = 0
    words: int = 0

    def at(self, word: int) -> "Slot":
        """The slot without its first `word` words; for a queue, the same slot."""
        return (
            self
            if self.mem in (Mem.NET_Q, Mem.MVM_Q)
            else Slot(mem=self.mem, address=self.address + word, words=self.words - word)
        )


NET = Slot(mem=Mem.NET_Q)
MVM = Slot(mem=Mem.MVM_Q)


@dataclass(frozen=True, slots=True)
class Clipped(Instruction):
    """An instruction whose quantiser's clips are an activation function, which stays when the quantiser is off.

    Attributes:
        low:  Smallest value.
        high: Largest value.
    """

    low: float = -np.inf
    high: float = np.inf


def clipped(instruction: Instruction, ends: np.ndarray | None) -> Instruction:
    """An instruction with the smallest and the largest value that are left where its quantiser is off, if any."""
    if ends is None or not np.isfinite(ends).any():
        return instruction
    fields = {name: getattr(instruction, name) for name in Instruction.__dataclass_fields__}
    return Clipped(**fields, low=float(ends[0]), high=float(ends[1]))


def read(slot: Slot) -> Instruction:
    """The source instruction that reads the words in `slot`."""
    return Instruction(op=Op.V_RD, mem=slot.mem, a=slot.address)


def write(slot: Slot) -> Instruction:
    """The instruction that writes the value of the chain to `slot`; the chain goes on with the same value."""
    return Instruction(op=Op.V_WR, mem=slot.mem, a=slot.address)


def read_codes(address: int, integer: bool) -> Instruction:
    """The source instruction that reads integer codes, or blocks, of entries of VectorRf as numbers."""
    return Instruction(op=Op.V_RD, mem=Mem.VECTOR_RF, a=address, integer=int(integer))


def write_codes(address: int, integer: bool) -> Instruction:
    """The instruction that quantises the value of the chain to integer codes, or blocks, in entries of VectorRf."""
    return Instruction(op=Op.V_WR, mem=Mem.VECTOR_RF, a=address, integer=int(integer))


def operate(op: Op, slot: Slot | None = None) -> Instruction:
    """A point-wise operation; its operand, if any, lies in `slot` of the memory of the stage."""
    return Instruction(op=op, a=slot.address if slot else 0)


def loop_end(program: Sequence[Instruction], loop: int) -> int:
    """The address of the instruction that ends the loop at an address.

    Raises:
        ValueError: nothing ends it.
    """
    depth = 0
    for address in range(loop, len(program)):
        depth += {Op.LOOP: 1, Op.END_LOOP: -1}.get(program[address].op, 0)
        if not depth:
            return address
    raise ValueError(f"the loop at instruction {loop} has no end")


#: Registers of a chain that runs once.
_ONCE = {Reg.ITERATIONS: 1, Reg.ITERATIONS_X: 1}
#: Mask of the field of a number.
_MASK = (1 << FIELDS["a"].width) - 1


class ProgramBuilder:
    """Collects instructions, and writes a scalar register only where its value changes."""

    def __init__(self):
        self.instructions: list[Instruction] = []
        self.sections: list[Section] = []
        self.loop: int | None = None  #: Address of the loop over time steps.
        self._notes: dict[int, list[str]] = defaultdict(list)
        self._names: dict[int, str] = {}  # Names of what chains compute, by address of the first instruction.
        # The last value of each; None for one that is not known. Those of iterations are 1 when a program begins.
        self._registers: dict[Reg, int | None] = dict(_ONCE)

    def instruction_words(self) -> list[int]:
        """The instruction words.

        Raises:
            ValueError: an address does not fit its field.
        """
        return [encode(instruction) for instruction in self.instructions]

    def text(self) -> str:
        """The program as text that the assembler reads."""
        lines = []
        for address, word in enumerate(self.instruction_words()):
            lines += [*(f"# {note}" for note in self._notes[address]), disassemble_word(word)]
        return "".join(f"{line}\n" for line in lines)

    def clips(self) -> dict[int, tuple[float, float]]:
        """The clips that stay where quantisers are off, by the address of the instruction."""
        return {address: (one.low, one.high) for address, one in enumerate(self.instructions)
                if isinstance(one, Clipped)}

    def note(self, text: str):
        """Add a comment on a line of its own, before the next instruction."""
        self._notes[len(self.instructions)].append(text)

    def named(self, name: str):
        """Name what the next chain computes, and add a comment that says it."""
        self._names[len(self.instructions)] = name
        self.note(f"gate {name}")

    def chain(
        self, *instructions: Instruction, rows: int, columns: int | None = None, out_scale: int | None = None,
        registers: Mapping[Reg, int] | None = None,
    ):
        """Add a chain.

        Args:
            columns, out_scale: Values of registers for its product, if it has one.
            registers:          Values of other registers; a chain has one iteration if they do not say another number.
        """
        values = {Reg.ROWS: rows, Reg.COLUMNS: columns, Reg.OUT_SCALE: out_scale, **_ONCE, **(registers or {})}
        for register, value in values.items():
            if value is not None:
                self._register(register, value & _MASK if register == Reg.OUT_SCALE else value)
        for instruction in (*instructions, Instruction(op=Op.END_CHAIN)):
            self._append(instruction)

    @contextmanager
    def repeated(self, count: int | None = None) -> Iterator[None]:
        """A context whose chains run `count` times; without it, they are the loop over time steps.

        Each chain of the loop over time steps runs once; the firmware sets the number of steps.
        """
        if count is None:
            self.loop = len(self.instructions)
        self._append(Instruction(op=Op.LOOP, a=count or 1))
        # In the second pass, registers hold what the first pass left; time steps leave those of iterations as they are.
        self._registers = dict(_ONCE) if count is None else dict.fromkeys(self._registers)
        yield
        self._append(Instruction(op=Op.END_LOOP))

    def set_base(self, base: int, value: int):
        """Set a base register, 1 to 3."""
        self._append(Instruction(op=Op.S_WR, mem=BASES[base - 1], a=value & _MASK, b=value >> FIELDS["a"].width))

    def move_base(self, base: int, distance: int):
        """Add a number, which may be negative, to a base register."""
        high = max(distance, 0) >> FIELDS["a"].width  # of machines with Dram, whose base registers are wider
        self._append(Instruction(op=Op.S_ADD, mem=BASES[base - 1], a=distance & _MASK, b=high))

    def splice(self, part: "ProgramBuilder"):
        """Add all instructions of a part that was made with `apart`."""
        at = len(self.instructions)
        self.instructions += part.instructions
        for address, notes in part._notes.items():
            self._notes[at + address] += notes
        self._names |= {at + address: name for address, name in part._names.items()}
        self.sections += [replace(section, first=at + section.first, last=at + section.last,
                                  names=tuple((at + address, name) for address, name in section.names))
                          for section in part.sections]
        self._registers |= part._registers

    @classmethod
    def apart(cls, after: "ProgramBuilder | None" = None) -> "ProgramBuilder":
        """A part of a program that knows the registers which another part leaves, or none of them."""
        part = cls()
        part._registers = dict.fromkeys(_ONCE) if after is None else dict(after._registers)
        return part

    def moved(self, instructions: list[Instruction], index: list[int]):
        """Replace the instructions by others, among which the old instruction k has the address `index[k]`.

        One that is left out has the address of the next one, which gets its notes and its name.
        """
        notes, self._notes, self.instructions = sorted(self._notes.items()), defaultdict(list), instructions
        for address, lines in notes:
            self._notes[index[address]] += lines
        self._names = {index[address]: name for address, name in self._names.items()}
        self.sections = [replace(section, first=index[section.first], last=index[section.last],
                                 names=tuple((index[address], name) for address, name in section.names))
                         for section in self.sections]
        self.loop = None if self.loop is None else index[self.loop]

    def end(self):
        """End the program."""
        self._append(Instruction(op=Op.END))

    @contextmanager
    def section(self, title: str, layer: str, kind: str = "") -> Iterator[None]:
        """A context whose instructions belong to `layer`; without instructions there is no section.

        Args:
            kind: What the layer is, for people.
        """
        self.note(title)
        first = len(self.instructions)
        yield
        if len(self.instructions) > first:
            names = tuple((address, name) for address, name in self._names.items() if address >= first)
            self.sections.append(
                Section(layer=layer, first=first, last=len(self.instructions) - 1, kind=kind, names=names))
        else:
            self._notes[first].remove(title)

    def _register(self, register: Reg, value: int):
        if self._registers.get(register) != value:
            self._registers[register] = value
            self._append(Instruction(op=Op.S_WR, mem=register, a=value))

    def _append(self, instruction: Instruction):
        self.instructions.append(instruction)
