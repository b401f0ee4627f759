"""Generates random legal programs, one chain or loop at a time."""

from collections import deque
from contextlib import suppress

import numpy as np
from concord.spec.chain import Registers
from concord.spec.check import Sequencer
from concord.spec.config import Config
from concord.spec.isa import LOOP_DEPTH, REGISTER_BITS, SPECS, STAGES, Instruction, Op, Reg, encode
from concord.spec.memories import QUEUES, VRFS, Mem, depth
from concord.spec.rules import Violation

_HOT = 10  #: Most addresses lie below this one, so that chains access the same words.
_STAGES = [[op for op, spec in SPECS.items() if spec.operation and spec.position == k] for k in range(STAGES)]


class ProgramGenerator:
    """A random program that grows by chains, loops and register writes, and stays legal.

    Args:
        config: Configuration of the machine.
        rng:    Source of all random choices.
        modes:  For each tile, whether it is in integer mode at the start.
        budget: Largest number of words that the chains of the program may move, in all passes of its loops.
    """

    def __init__(self, config: Config, rng: np.random.Generator, modes: list[bool], budget: int):
        self.config, self.rng, self.modes, self.budget = config, rng, modes, budget
        self.program: list[int] = []
        self._open = 0
        self._known, self._state = None, None  # A program, and the state at its end.

    def extend(self):
        """Try to append a random part; nothing is appended if the program would not be legal."""
        if self._open < LOOP_DEPTH and self.rng.random() < 0.15:
            self._loop()
        elif self.rng.random() < 0.05:
            self._append(self._registers(iterations=int(self.rng.integers(1, 5)), iterations_x=1))
        else:
            self._append(self._chain())

    def end(self) -> list[int]:
        """The finished program."""
        return [*self.program, encode(Instruction(op=Op.END))]

    def state(self) -> Sequencer:
        """Registers, modes and MvmQ at the end of the program so far, in the first pass of its loops."""
        if self._known is not self.program:
            self._known, self._state = self.program, Sequencer(self.config, self.program, list(self.modes))
            # The walk stops at the erased instruction after the last one.
            with suppress(Violation):
                deque(self._state.walk(repeat=False), 0)
        return self._state

    def _moved(self, program: list[int]) -> int:
        """Number of words that a program moves; counting stops once it exceeds the budget.

        Raises:
            Violation: the program is not legal.
        """
        moved = 0
        for chain in Sequencer(self.config, program, list(self.modes)).walk():
            moved += (chain.source_words + chain.result_words) * chain.registers.iterations
            if moved > self.budget:
                break
        return moved

    def _append(self, words: list[int]) -> bool:
        closing = [encode(Instruction(op=Op.END_LOOP))] * self._open + [encode(Instruction(op=Op.END))]
        program = self.program + words
        if len(program) + len(closing) > self.config.instructions:
            return False
        try:
            fits = self._moved(program + closing) <= self.budget
        except Violation:
            return False
        if fits:
            self.program = program
        return fits

    def _loop(self):
        before = self.program
        self._open += 1
        if self._append([encode(Instruction(op=Op.LOOP, a=int(self.rng.integers(1, 5))))]):
            body = self.program
            for _ in range(int(self.rng.integers(1, 5))):
                self.extend()
            empty = self.program is body
            self._open -= 1
            if empty or not self._append([encode(Instruction(op=Op.END_LOOP))]):
                self.program = before
        else:
            self._open -= 1

    def _registers(self, **wanted: int) -> list[int]:
        """`s_wr` for each register whose value must change, and for some others, in random order."""
        now = self.state().registers
        names = [name for name, value in wanted.items() if getattr(now, name) != value or self.rng.random() < 0.05]
        self.rng.shuffle(names)
        return [encode(Instruction(op=Op.S_WR, mem=Reg[name.upper()], a=wanted[name] % (1 << REGISTER_BITS)))
                for name in names]

    def _chain(self) -> list[int]:
        held = self.state().held
        kinds = {self._vectors: 6, self._copy: 2, self._product: 0 if held else 5, self._push: 3, self._load: 1,
                 self._pop: 12 if held else 0}
        weights = np.array(list(kinds.values()))
        return self.rng.choice(list(kinds), p=weights / weights.sum())()

    def _shape(self, most_words: int, step: int = 1) -> Registers:
        """Random registers of a chain of at most `most_words` words; source strides are multiples of `step`."""
        rng, lanes = self.rng, self.config.mfu_lanes
        words = int(rng.integers(1, max(1, min(most_words, 3 * self.config.vector_words + 2)) + 1))
        rows = words * lanes - int(rng.integers(lanes) if rng.random() < 0.5 else 0)
        iterations = int(rng.integers(2, 7)) if rng.random() < 0.4 else 1
        divisors = [x for x in range(1, iterations + 1) if iterations % x == 0]
        strides = [0, 1, words, words + 1, 2]
        return Registers(
            rows=rows, columns=1, iterations=iterations, iterations_x=int(rng.choice(divisors)),
            stride_x=int(rng.choice(strides)) * step, stride_y=int(rng.choice(strides)) * step,
            stride_out=int(rng.choice(strides)))

    def _vectors(self) -> list[int]:
        shape = self._shape(12)
        return self._whole(shape, [self._source(shape, (*VRFS, Mem.NET_Q))], self._operations(shape))

    def _copy(self) -> list[int]:
        shape = self._shape(12)
        return self._whole(shape, [self._source(shape, (*VRFS, Mem.NET_Q))], [])

    def _pop(self) -> list[int]:
        held, shape = self.state().held, self._shape(12)
        words = min(self.config.words_of(shape.rows), held)
        changes = {"rows": min(shape.rows, words * self.config.mfu_lanes)}
        if words * shape.iterations > held:
            changes |= {"iterations": held // words, "iterations_x": 1}
        shape = _changed(shape, **changes)
        return self._whole(shape, [Instruction(op=Op.V_RD, mem=Mem.MVM_Q)], self._operations(shape))

    def _load(self) -> list[int]:
        config, rng = self.config, self.rng
        shape = self._shape(1)
        shape = _changed(shape, iterations=min(shape.iterations, 2, config.matrix_tiles), iterations_x=1)
        tile = int(rng.integers(min(config.matrix_tiles - shape.iterations, _HOT) + 1))
        target = Instruction(op=Op.M_WR, mem=Mem.MATRIX_RF, a=tile, integer=int(rng.integers(2)))
        return self._close(shape, [Instruction(op=Op.M_RD, mem=Mem.NET_Q), target])

    def _push(self) -> list[int]:
        source_and_product, shape = self._multiply(self.config.mvmq_words // 2)
        return self._close(shape, [*source_and_product, Instruction(op=Op.V_WR, mem=Mem.MVM_Q)])

    def _product(self) -> list[int]:
        source_and_product, shape = self._multiply(self.config.accumulator_rows // self.config.mfu_lanes)
        return self._whole(shape, source_and_product, self._operations(shape) if self.rng.random() < 0.8 else [])

    def _multiply(self, most_words: int) -> tuple[list[Instruction], Registers]:
        config, rng = self.config, self.rng
        shape = self._shape(most_words, config.vector_words)
        rows = min(shape.rows, config.accumulator_rows)
        row_tiles = config.vectors_of(rows)
        columns = int(rng.integers(1, min(config.operand_columns, 4, max(1, config.matrix_tiles // row_tiles)) + 1))
        shape = _changed(shape, rows=rows, columns=columns, out_scale=int(rng.integers(-4, 9)
                         if rng.random() < 0.8 else rng.integers(-32, 32)))
        modes, count = self.state().modes, row_tiles * columns
        first = [t for t in range(config.matrix_tiles - count + 1) if len(set(modes[t:t + count])) == 1]
        tile = int(rng.choice(first[:_HOT] if rng.random() < 0.6 else first)) if first else 0
        integer, words = modes[tile], config.words_of(rows)
        bias = integer and rng.random() < 0.5 and words <= config.bias_words
        product = Instruction(
            op=Op.MV_MUL, a=tile, integer=int(integer), unsigned=int(integer and rng.random() < 0.4), bias=int(bias),
            b=int(rng.integers(config.bias_words - words + 1)) if bias else 0)
        size = config.vector_words
        return [self._source(shape, (*VRFS, Mem.NET_Q), columns * size, size), product], shape

    def _source(self, shape: Registers, mems, words: int | None = None, step: int = 1) -> Instruction:
        mem = mems[self.rng.integers(len(mems))]
        y = shape.iterations // shape.iterations_x - 1
        reach = (shape.iterations_x - 1) * shape.stride_x + y * shape.stride_y
        return self._placed(shape, Instruction(op=Op.V_RD, mem=mem), mem, reach, words, step)

    def _placed(self, shape, instruction, mem, reach, words=None, step=1) -> Instruction:
        """The instruction at a random address of its memory, which advances with the iterations or not."""
        if mem in QUEUES:
            return instruction
        inc = int(self.rng.random() < (0.7 if shape.iterations > 1 else 0.1))
        room = depth(self.config, mem) - (words or self.config.words_of(shape.rows))
        if reach * inc > room:
            inc = 0
        room = max(room - reach * inc, 0) // step
        address = step * int(self.rng.integers((min(room, _HOT // step) if self.rng.random() < 0.7 else room) + 1))
        return Instruction(op=instruction.op, mem=instruction.mem, a=address, inc=inc)

    def _operations(self, shape: Registers) -> list[Instruction]:
        density = self.rng.choice((0.2, 0.5, 1.0))
        chosen = [self.rng.choice(ops) for ops in _STAGES if self.rng.random() < density]
        reach = (shape.iterations - 1) * shape.stride_out
        return [self._placed(shape, Instruction(op=Op(op)), SPECS[op].operand, reach) if SPECS[op].operand
                else Instruction(op=Op(op)) for op in chosen]

    def _whole(self, shape, source, operations) -> list[int]:
        """A chain with one to three writes: one at its end, the others at random places after the source."""
        count = int(self.rng.choice((1, 2, 3), p=(0.6, 0.25, 0.15)))
        mems = self.rng.permutation([*VRFS, Mem.NET_Q])[:count]
        reach = (shape.iterations - 1) * shape.stride_out
        *taps, last = [self._placed(shape, Instruction(op=Op.V_WR, mem=int(mem)), Mem(mem), reach) for mem in mems]
        body = list(operations)
        for tap in taps:
            body.insert(int(self.rng.integers(len(body) + 1)), tap)
        return self._close(shape, [*source, *body, last])

    def _close(self, shape, instructions) -> list[int]:
        """Instruction words that set the registers of a chain, and then those of the chain."""
        names = ["rows", "iterations", "iterations_x"]
        names += ["columns"] * any(i.op == Op.MV_MUL for i in instructions)
        names += ["out_scale"] * any(i.op == Op.MV_MUL and i.integer for i in instructions)
        names += ["stride_x", "stride_y"] * instructions[0].inc
        names += ["stride_out"] * any(i.inc for i in instructions[1:])
        chain = [*instructions, Instruction(op=Op.END_CHAIN)]
        return self._registers(**{n: getattr(shape, n) for n in names}) + [encode(i) for i in chain]


def _changed(shape: Registers, **changes) -> Registers:
    return Registers(**{name: getattr(shape, name) for name in Registers.__slots__} | changes)
