"""The firmware of several machines as one program, on a machine with all of their memories.

Each machine has its part of each memory. Words that a machine sends to the next one wait in a queue of their own; the
host's words enter the first machine, and those of the last one go to the host. Loops over time steps become one loop.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from concord.firmware.cascade import Cascade
from concord.firmware.firmware import Firmware, Section, Tiles
from concord.spec.isa.chain import Registers
from concord.spec.isa.disassembler import disassemble_word
from concord.spec.isa.instructions import FIELDS, SPECS, Instruction, Op, Reg, decode, encode
from concord.spec.isa.memories import ADDRESSED, FILLED, VRFS, Mem, depth
from concord.spec.machine.config import Config

#: Attributes of machines on which no bit depends: sizes, of which the joined machine has the sum, or speed.
_SIZES = (*dict.fromkeys(mem.size for mem in FILLED), "instructions")
_FREE = (*_SIZES, "tile_engines", "multipliers", "net_in", "net_out", "mvmq_words", "accumulator_rows",
         "operand_columns", "chain_queue", "message_bytes", "clock_mhz", "softmax_words", "count_overflows",
         "lazy_update", "lanes", "mfu_registers", "partial_sums")
#: Most instructions that write registers for one machine: all registers, in front of each of three spans of a program.
_SWITCH = 3 * len(Reg)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Joined(Firmware):
    """Several firmwares as one.

    Attributes:
        machines: Number of the machine of each instruction.
    """

    machines: tuple[int, ...]


def joined(cascade: Cascade) -> Joined:
    """The program of all machines.

    Raises:
        ValueError: the machines compute in different formats.
    """
    return _Joining(cascade).firmware()


class _Joining:
    """Addresses of each machine in the joined memories, and the program so far."""

    def __init__(self, cascade: Cascade):
        self._cascade, self._config = cascade, _config(cascade)
        self._offsets = list(_offsets(cascade.parts))
        self._words: list[int] = []
        self._machines: list[int] = []
        self._moved: list[dict[int, int]] = [{} for _ in cascade.parts]  # addresses of a part in the joined program
        reset = Registers.reset(self._config)
        self._registers = [{reg: getattr(reset, reg.name.lower()) for reg in Reg if hasattr(reset, reg.name.lower())}
                           for _ in cascade.parts]

    def firmware(self) -> Joined:
        first, last, parts = self._cascade.first, self._cascade.last, self._cascade.parts
        loop = self._program()
        return Joined(
            name=self._cascade.name, config=self._config, data=first.data, description=first.description,
            classes=last.classes, inputs=first.inputs, outputs=last.outputs, loop=loop,
            text="".join(f"{disassemble_word(word)}\n" for word in self._words),
            instruction_words=np.array(self._words, np.uint64), sections=self._sections(),
            vectors={mem: self._memory(mem) for mem in VRFS if any(mem in part.vectors for part in parts)},
            tiles=Tiles(**{name: np.concatenate([getattr(part.tiles, name) for part in parts])
                           for name in ("mantissas", "exponents", "integer")}),
            biases=np.concatenate([part.biases for part in parts]), input_words=first.input_words,
            directions=first.directions,
            entries=tuple(replace(one, address=one.address + self._offsets[k][Mem.VECTOR_RF])
                          for k, part in enumerate(parts) for one in part.entries),
            input_layout=first.input_layout, output_layout=last.output_layout, steps=first.steps,
            machines=tuple(self._machines))

    def _program(self) -> int | None:
        """Append the programs; returns the address of the loop over time steps."""
        timed = [k for k, part in enumerate(self._cascade.parts) if part.loop is not None]
        spans, address = [_spans(part) for part in self._cascade.parts], None
        for k in timed:
            self._append(k, spans[k][0])
        if timed:
            address = len(self._words)
            self._add(timed[0], encode(Instruction(op=Op.LOOP, a=1)))
            for k in timed:
                self._append(k, spans[k][1])
            self._add(timed[0], encode(Instruction(op=Op.END_LOOP)))
        for k in range(len(self._cascade.parts)):
            self._append(k, spans[k][2])
        self._add(len(spans) - 1, encode(Instruction(op=Op.END)))
        return address

    def _append(self, k: int, addresses: range):
        """Append instructions of a machine, after the registers as it knows them."""
        if not addresses:
            return
        for register, value in self._registers[k].items():
            self._add(k, encode(Instruction(op=Op.S_WR, mem=register, a=value & (1 << FIELDS["a"].width) - 1)))
        for address in addresses:
            instruction = decode(int(self._cascade.parts[k].instruction_words[address]))
            if instruction.op == Op.S_WR and instruction.mem in self._registers[k]:
                self._registers[k][instruction.mem] = instruction.a
            self._moved[k][address] = len(self._words)
            self._add(k, encode(self._with_addresses(k, instruction)))

    def _add(self, k: int, word: int):
        self._words.append(word)
        self._machines.append(k)

    def _with_addresses(self, k: int, instruction: Instruction) -> Instruction:
        """An instruction with the addresses of the joined memories."""
        offsets, spec = self._offsets[k], SPECS[instruction.op]
        if instruction.op in (Op.V_RD, Op.V_WR, Op.M_RD):
            return replace(instruction, a=instruction.a + offsets.get(instruction.mem, 0))
        if instruction.op == Op.MV_MUL:
            bias = instruction.b + offsets[Mem.BIAS_RF] if instruction.bias else 0
            return replace(instruction, a=instruction.a + offsets[Mem.MATRIX_RF], b=bias)
        if instruction.op == Op.M_WR:
            return replace(instruction, a=instruction.a + offsets[Mem.MATRIX_RF])
        return replace(instruction, a=instruction.a + offsets[spec.operand]) if spec.operand else instruction

    def _sections(self) -> tuple[Section, ...]:
        """The sections of all machines, in order of their addresses."""
        found = []
        for moved, part in zip(self._moved, self._cascade.parts, strict=True):
            for one in part.sections:
                inside = [moved[address] for address in range(one.first, one.last + 1) if address in moved]
                names = tuple((moved[address], name) for address, name in one.names)
                found.append(replace(one, first=inside[0], last=inside[-1], names=names))
        return tuple(sorted(found, key=lambda one: one.first))

    def _memory(self, mem: Mem) -> np.ndarray:
        """The content of a vector memory of all machines."""
        parts = [(offsets[mem], part.vectors[mem]) for offsets, part in
                 zip(self._offsets, self._cascade.parts, strict=True) if mem in part.vectors]
        content = np.zeros((max(first + len(words) for first, words in parts), self._config.mfu_lanes), np.uint16)
        for first, words in parts:
            content[first:first + len(words)] = words
        return content


def _config(cascade: Cascade) -> Config:
    """A machine with the memories of all."""
    configs = [part.config for part in cascade.parts]
    for field in fields(Config):
        if field.name not in _FREE and len({getattr(one, field.name) for one in configs}) > 1:
            raise ValueError(f"{cascade.name}: its machines differ in {field.name}, and one program cannot compute for "
                             "both: compile the model for machines of one kind")
    size = {name: sum(getattr(one, name) for one in configs) for name in _SIZES}
    size["instructions"] += _SWITCH * len(configs)
    size |= {name: max(getattr(one, name) for one in configs) for name in ("accumulator_rows", "operand_columns",
                                                                           "mvmq_words", "softmax_words")}
    return replace(configs[0], **size)


def _offsets(parts: Sequence[Firmware]) -> Iterator[dict[Mem, int]]:
    """The first address of each machine in each joined memory.

    A program may write to any word of a vector memory, also after those that the firmware fills. Tiles and biases are
    those of the firmware, one machine after the other.
    """
    found = dict.fromkeys(FILLED, 0)
    for part in parts:
        yield dict(found)
        for mem in found.keys() & set(ADDRESSED):
            found[mem] += depth(part.config, mem)
        found[Mem.MATRIX_RF] += len(part.tiles.mantissas)
        found[Mem.BIAS_RF] += len(part.biases)


def _spans(part: Firmware) -> tuple[range, range, range]:
    """The instructions in front of the loop over time steps, in it, and after it; without a loop, all are after."""
    ops, end = [decode(word).op for word in part.instruction_words.tolist()], len(part.instruction_words) - 1
    if part.loop is None:
        return range(0), range(0), range(end)
    depth = 0
    for address in range(part.loop, end):
        depth += (ops[address] == Op.LOOP) - (ops[address] == Op.END_LOOP)
        if not depth:
            break
    return range(part.loop), range(part.loop + 1, address), range(address + 1, end)
