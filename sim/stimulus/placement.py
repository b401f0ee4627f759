"""Random sizes, windows, addresses and base registers of chains, such that most of them lie within the memories."""

from dataclasses import replace

import numpy as np
from concord.sim.stimulus.dram_region import DramRegion
from concord.spec.isa.chain import Chain, Registers
from concord.spec.isa.instructions import BASES, REGISTER_BITS, SPECS, Instruction, Op, decode, increment_fields
from concord.spec.isa.memories import QUEUES, Mem, depth, present
from concord.spec.machine.config import Config

_HOT = 10  #: Most addresses lie below this one, so that chains access the same words and entries.
_OUT = Instruction(op=Op.V_WR, mem=Mem.NET_Q)
_STEPS = (1, 1, 2, 3, 4, 8, -1, -2, -4)  #: Words or entries; a native vector of the tested machines has 1 to 4 words.


def changed(shape: Registers, **changes: int) -> Registers:
    """These registers with other values of some of them."""
    return Registers(**{name: getattr(shape, name) for name in Registers.__slots__} | changes)


class Placement:
    """Random choices for the chains of one machine.

    Args:
        config: Configuration of the machine.
        rng:    Source of all random choices.

    Attributes:
        outside: The region of Dram that chains use; None on machines without Dram.
    """

    def __init__(self, config: Config, rng: np.random.Generator):
        self.config, self.rng = config, rng
        self.outside = DramRegion(config, rng) if config.dram_words else None

    def shape(self, most_words: int, step: int = 1) -> Registers:
        """Random registers of a chain of at most `most_words` words; source strides are multiples of `step`."""
        rng, lanes = self.rng, self.config.mfu_lanes
        words = int(rng.integers(1, max(1, min(most_words, 3 * self.config.vector_words + 2)) + 1))
        rows = words * lanes - int(rng.integers(lanes) if rng.random() < 0.5 else 0)
        iterations = int(rng.integers(2, 7)) if rng.random() < 0.4 else 1
        divisors = [x for x in range(1, iterations + 1) if iterations % x == 0]
        strides, entries = [0, 1, words, words + 1, 2], self.config.vectors_of(rows)
        return Registers(
            rows=rows, columns=1, iterations=iterations, iterations_x=int(rng.choice(divisors)),
            stride_x=int(rng.choice(strides)) * step, stride_y=int(rng.choice(strides)) * step,
            stride_out=int(rng.choice(strides)), stride_vec=int(rng.choice((0, 1, entries, entries, entries + 1))),
            skip_vec=int(rng.choice((0, 0, 1, 2))))

    def window(self, shape: Registers, most: int, unit: int = 1) -> Registers:
        """These registers with a random window of at most `most` columns, and strides between windows.

        Args:
            unit: Number of words or entries that a pixel often has.
        """
        rng = self.rng
        vectors = int(rng.integers(1, min(3, most) + 1)) if unit == 1 else 1
        x = int(rng.integers(1, min(4, most // vectors) + 1))
        y = int(rng.integers(1, min(3, most // vectors // x) + 1))
        pixel = vectors * unit
        step = int(rng.choice((0, 1, pixel, pixel, pixel, pixel + 1)))
        pitch = int(rng.choice((0, 1, x * step, x * step + 1, x * pixel, x * pixel + 2 * pixel)))
        strides = (0, 1, pixel, pixel, 2 * pixel, x * pixel + 1)
        return changed(
            shape, columns=vectors * x * y, window_vectors=vectors, window_x=x, window_y=y, window_step=step,
            window_pitch=pitch, window_group=int(rng.choice((0, 0, 1, vectors, vectors + 1))),
            stride_x=int(rng.choice(strides)), stride_y=int(rng.choice((*strides, pitch))))

    def entry_strides(self, shape: Registers, columns: int) -> Registers:
        """These registers with strides of a source that reads `columns` entries of VectorRf in each iteration."""
        x, y = self.rng.choice((0, 1, 1, 2, columns, columns + 1), 2)
        return changed(shape, stride_x=int(x), stride_y=int(y))

    def mode(self) -> dict[str, int]:
        """A random mode in which entries are written, or read as numbers."""
        return dict(zip(("integer", "unsigned"), ((0, 0), (1, 0), (1, 1))[self.rng.integers(3)], strict=True))

    def source(self, shape: Registers, mem: Mem, follower: Instruction = _OUT, step: int = 1) -> Instruction:
        """A `v_rd` of this memory for a chain that goes on with `follower`; addresses are multiples of `step`."""
        mode = self.mode() if mem == Mem.VECTOR_RF and follower.op != Op.MV_MUL else {}
        return self.addressed(shape, Instruction(op=Op.V_RD, mem=mem, **mode), follower, step)

    def operation(self, shape: Registers, op: Op) -> Instruction:
        """A point-wise operation, with a random address if it has an operand."""
        if not SPECS[op].operand:
            return Instruction(op=op)
        held = self.config.more_functions and self.rng.random() < 0.3  # machines without it draw nothing
        return self.addressed(shape, Instruction(op=op, held=int(held)))

    def write(self, shape: Registers, mem: Mem, source: list[Instruction]) -> Instruction:
        """A `v_wr` to this memory for a chain that begins with `source`; it seldom writes what a gather reads."""
        mode, avoid = self.mode() if mem == Mem.VECTOR_RF else {}, None
        chain = Chain.resolve(self.config, 0, (*source, _OUT), shape)
        if mem == chain.source.mem and (mem in (Mem.VECTOR_RF, Mem.DRAM) or chain.gathers):
            avoid = chain.source_span()
        return self.addressed(shape, Instruction(op=Op.V_WR, mem=mem, **mode), avoid=avoid)

    def addressed(self, shape, instruction, follower=_OUT, step=1, avoid=None) -> Instruction:
        """The instruction at a random address of its memory, which advances with the iterations or not."""
        mem = instruction.mem or SPECS[instruction.op].operand
        if mem in QUEUES:
            return instruction
        inc = int(self.rng.random() < (0.7 if shape.iterations > 1 else 0.1))
        lengths = [self._length(shape, replace(instruction, inc=moving), follower) for moving in (0, inc)]
        size = len(self.outside.free) if mem == Mem.DRAM else depth(self.config, mem)
        inc, length = (inc, lengths[1]) if lengths[1] <= size else (0, lengths[0])
        if mem == Mem.DRAM:
            return replace(instruction, inc=inc, a=self.outside.address(length, avoid=avoid))
        return replace(instruction, inc=inc, a=self._address(size - length, length, step, avoid))

    def steps(self, instructions: list[Instruction]) -> list[Instruction]:
        """Instructions that move the base registers of these by a tile, or by native vectors."""
        size, rng = self.config.vector_words, self.rng
        moves = {i.base: 1 if i.op == Op.M_WR else size * int(rng.choice((1, 1, 2, -1))) for i in instructions[::-1]}
        return [Instruction(op=Op.S_ADD, mem=BASES[base - 1], **increment_fields(step))
                for base, step in moves.items()]

    def _length(self, shape, instruction, follower):
        """Number of words or entries from the first to the last that an instruction uses."""
        if instruction.op == Op.V_RD:
            return len(Chain.resolve(self.config, 0, (instruction, follower), shape).source_span())
        reader = Instruction(op=Op.V_RD, mem=Mem.NET_Q)
        return len(Chain.resolve(self.config, 0, (reader, instruction), shape).result_span(instruction))

    def _address(self, room, length, step, avoid):
        """A multiple of `step` up to `room`: mostly one of the first, sometimes the last, and where it can be beside
        the range `avoid`."""
        rng, room = self.rng, max(room, 0) // step
        if avoid is not None and rng.random() < 0.97:
            free = [a for a in range(0, room * step + 1, step) if a + length <= avoid.start or a >= avoid.stop]
            if free:
                return int(rng.choice(free))
        if rng.random() < 0.08:
            return room * step
        return step * int(rng.integers((min(room, _HOT // step) if rng.random() < 0.7 else room) + 1))


def based(words: list[int]) -> list[Instruction]:
    """The loads of tiles and reads of their vectors, among instruction words, that name base registers."""
    return [i for i in map(decode, words) if i.op in (Op.M_RD, Op.M_WR) and i.base]


def movement(rng: np.random.Generator) -> Instruction:
    """An `s_wr` or an `s_add` of a base register."""
    reg = int(rng.choice(BASES))
    if rng.random() < 0.4:
        return Instruction(op=Op.S_WR, mem=reg, a=int(rng.integers(12)))
    return Instruction(op=Op.S_ADD, mem=reg, a=int(rng.choice(_STEPS)) % (1 << REGISTER_BITS))


def with_base(config: Config, instruction: Instruction, bases: tuple[int, ...],
              rng: np.random.Generator) -> Instruction:
    """The instruction, or the same one with a part of its address in a base register, if it can name one.

    Args:
        bases: Base registers by the field `base`.
    """
    fields = SPECS[instruction.op].fields_on(present(config))
    if instruction.mem in (*QUEUES, Mem.DRAM) or "base" not in fields or rng.random() < 0.6:
        return instruction
    base = int(rng.choice([k for k, value in enumerate(bases) if value <= instruction.a]))
    return replace(instruction, a=instruction.a - bases[base], base=base)
