"""Generates random legal programs, one chain or loop at a time."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress

import numpy as np
from concord.sim.stimulus.dram_chains import DramChains
from concord.sim.stimulus.placement import Placement, based, changed, movement, with_base
from concord.spec.isa.chain import Registers
from concord.spec.isa.check import Sequencer, WalkState
from concord.spec.isa.instructions import LOOP_DEPTH, REGISTER_BITS, STAGES, Instruction, Op, Reg, encode, specs
from concord.spec.isa.memories import VRFS, Mem
from concord.spec.isa.rules import Violation
from concord.spec.machine.config import Config

_HOT = 10  #: Most tiles lie below this one, so that chains use the same tiles.
_SOURCES = (*VRFS, Mem.NET_Q)


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
        self.placement = Placement(config, rng)
        self._stages = [[op for op, spec in specs(config).items() if spec.operation and spec.position == k]
                        for k in range(STAGES)]
        self.program: list[int] = []
        self._open = 0
        self._known, self._state = None, None  # A program, and the state at its end.
        #: The last position outside loops; what stands before it is not walked again.
        self._checked: WalkState | None = None
        self._before = 0  # Number of words that the program moves up to there.
        self._outside = DramChains(self) if config.dram_words else None

    def extend(self):
        """Try to append a random part; nothing is appended if the program would not be legal."""
        if self._open < LOOP_DEPTH and self.rng.random() < 0.15:
            self._loop()
        elif self.rng.random() < 0.05:
            self._append(self._registers(iterations=int(self.rng.integers(1, 5)), iterations_x=1))
        elif self.rng.random() < (0.25 if self._open else 0.1):
            self._append([encode(self._movement())])
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
                deque(self._state.walk(repeat=False, start=self._checked), 0)
        return self._state

    def _append(self, words: list[int]) -> bool:
        closing = [encode(Instruction(op=Op.END_LOOP))] * self._open + [encode(Instruction(op=Op.END))]
        program = self.program + words
        if len(program) + len(closing) > self.config.instructions:
            return False
        walked, moved = Sequencer(self.config, program + closing, list(self.modes)), self._before
        try:
            for chain in walked.walk(start=self._checked):
                moved += (chain.source_words + chain.result_words) * chain.registers.iterations
                if moved > self.budget or self._outside and not self.placement.outside.holds(chain):
                    return False
        except Violation:
            return False
        self.program = program
        if not self._open:
            self._checked, self._before = walked.at(len(program)), moved
        return True

    def extend_with_tiles(self):
        """Try to append a loop that makes tiles of vectors where base registers say, and loads and multiplies others.

        The machine has Dram.
        """
        chains = self._outside

        def body():
            words = next((words for words in (chains.build() for _ in range(4)) if based(words)), [])
            self._append(words)
            self._append([encode(move) for move in self.placement.steps(based(words))])
            for make in self.rng.permutation([chains.load, chains.multiply, self._product])[:2]:
                self._append(make())

        if self._open < LOOP_DEPTH and not self.state().held:
            self._loop(body)

    def _extend_often(self):
        for _ in range(int(self.rng.integers(1, 5))):
            self.extend()

    def _loop(self, fill: Callable[[], None] | None = None):
        before = self.program
        self._open += 1
        if self._append([encode(Instruction(op=Op.LOOP, a=int(self.rng.integers(1, 5))))]):
            body = self.program
            (fill or self._extend_often)()
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
        held, entries = self.state().held, bool(self.config.vector_rf)
        kinds = {self._vectors: 6, self._copy: 4, self._product: 0 if held else 5, self._push: 3, self._load: 1,
                 self._pop: 12 if held else 0, self._columns: 0 if held else 6 * entries, self._gather: 6 * entries}
        kinds |= self._outside.kinds() if self._outside else {}
        weights = np.array(list(kinds.values()))
        return self.rng.choice(list(kinds), p=weights / weights.sum())()

    def _movement(self) -> Instruction:
        return self.placement.outside.movement() if self._outside and self.rng.random() < 0.5 else movement(self.rng)

    def _any(self, mems) -> Mem:
        return mems[self.rng.integers(len(mems))]

    def _vectors(self) -> list[int]:
        shape = self.placement.shape(12)
        return self.whole(shape, [self.placement.source(shape, self._any(_SOURCES))], self.operations(shape))

    def _copy(self) -> list[int]:
        shape = self.placement.shape(12)
        return self.whole(shape, [self.placement.source(shape, self._any(_SOURCES))], [], entries=1)

    def _gather(self) -> list[int]:
        """A chain that reads entries as numbers, or windows of entries or words."""
        placement, shape, pools = self.placement, self.placement.shape(12), self.rng.random() < 0.6
        mem = Mem.VECTOR_RF if self.rng.random() < 0.6 or not pools else self._any(VRFS)
        if pools:
            shape = placement.window(shape, 9, self.config.vectors_of(shape.rows) if mem == Mem.VECTOR_RF
                                 else self.config.words_of(shape.rows))
            pool = Instruction(op=Op.V_POOL_MAX)
            source = [placement.source(shape, mem, pool), pool]
        else:
            shape = placement.entry_strides(shape, self.config.vectors_of(shape.rows))
            source = [placement.source(shape, mem)]
        return self.whole(shape, source, self.operations(shape) if self.rng.random() < 0.5 else [])

    def _pop(self) -> list[int]:
        held, shape = self.state().held, self.placement.shape(12)
        words = min(self.config.words_of(shape.rows), held)
        changes = {"rows": min(shape.rows, words * self.config.mfu_lanes)}
        if words * shape.iterations > held:
            changes |= {"iterations": held // words, "iterations_x": 1}
        shape = changed(shape, **changes)
        return self.whole(shape, [Instruction(op=Op.V_RD, mem=Mem.MVM_Q)], self.operations(shape))

    def _load(self) -> list[int]:
        config, rng = self.config, self.rng
        shape = self.placement.shape(1)
        shape = changed(shape, iterations=min(shape.iterations, 2, config.matrix_tiles), iterations_x=1)
        tile = int(rng.integers(min(config.matrix_tiles - shape.iterations, _HOT) + 1))
        target = Instruction(op=Op.M_WR, mem=Mem.MATRIX_RF, a=tile, integer=int(rng.integers(2)))
        return self.close(shape, [Instruction(op=Op.M_RD, mem=Mem.NET_Q), target])

    def _push(self) -> list[int]:
        entries = bool(self.config.vector_rf) and self.rng.random() < 0.5
        source_and_product, shape = self._multiply(self.config.mvmq_words // 2, from_entries=entries)
        return self.close(shape, [*source_and_product, Instruction(op=Op.V_WR, mem=Mem.MVM_Q)])

    def _product(self, *, from_entries: bool = False) -> list[int]:
        source_and_product, shape = self._multiply(
            self.config.accumulator_rows // self.config.mfu_lanes, from_entries=from_entries)
        return self.whole(shape, source_and_product, self.operations(shape) if self.rng.random() < 0.8 else [])

    def _columns(self) -> list[int]:
        return self._product(from_entries=True)

    def _multiply(self, most_words: int, *, from_entries: bool) -> tuple[list[Instruction], Registers]:
        config, rng, placement, size = self.config, self.rng, self.placement, self.config.vector_words
        shape = placement.shape(most_words, size)
        shape = changed(shape, rows=min(shape.rows, config.accumulator_rows), out_scale=int(
            rng.integers(-4, 9) if rng.random() < 0.8 else rng.integers(-32, 32)))
        row_tiles = config.vectors_of(shape.rows)
        most = max(1, config.matrix_tiles // row_tiles)
        window = from_entries and rng.random() < 0.7
        if window:
            shape = placement.window(shape, min(most, 12))
        else:
            several = config.tile_engines if config.partial_sums else 1  # only several steps change their order
            columns = int(rng.integers(1, min(config.operand_columns, 4 * several, most) + 1))
            if from_entries and rng.random() < 0.15:
                columns = min(config.operand_columns + 1, most)
            shape = changed(shape, columns=columns)
            shape = placement.entry_strides(shape, columns) if from_entries else shape
        product = self._tiles(shape, row_tiles, window=int(window), from_entries=from_entries)
        if from_entries:
            return [placement.source(shape, Mem.VECTOR_RF, product), product], shape
        return [placement.source(shape, self._any(_SOURCES), product, size), product], shape

    def _tiles(self, shape: Registers, row_tiles: int, *, window: int, from_entries: bool) -> Instruction:
        """An `mv_mul` of random tiles that have one mode."""
        config, rng, modes, count = self.config, self.rng, self.state().modes, row_tiles * shape.columns
        first = [t for t in range(config.matrix_tiles - count + 1) if len(set(modes[t:t + count])) == 1]
        tile = int(rng.choice(first[:_HOT] if rng.random() < 0.6 else first)) if first else 0
        integer, words = modes[tile], config.words_of(shape.rows)
        bias = integer and rng.random() < 0.5 and words <= config.bias_words
        return Instruction(
            op=Op.MV_MUL, a=tile, integer=int(integer), bias=int(bias), window=window,
            unsigned=int(integer and not from_entries and rng.random() < 0.4),
            b=int(rng.integers(config.bias_words - words + 1)) if bias else 0)

    def operations(self, shape: Registers) -> list[Instruction]:
        density = self.rng.choice((0.2, 0.5, 1.0))
        chosen = [self.rng.choice(ops) for ops in self._stages if self.rng.random() < density]
        return [self.placement.operation(shape, Op(op)) for op in chosen]

    def whole(self, shape, source, operations, *, entries: int = 3) -> list[int]:
        """A chain with one to three writes: one at its end, the others at random positions after the source.

        Args:
            entries: How much likelier a write of VectorRf is than one of a vector memory.
        """
        count = int(self.rng.choice((1, 2, 3), p=(0.6, 0.25, 0.15)))
        choices = [*VRFS, Mem.NET_Q, Mem.NET_Q] + [Mem.VECTOR_RF] * entries * bool(self.config.vector_rf)
        choices += [Mem.DRAM] * bool(self._outside)
        mems = list(dict.fromkeys(map(Mem, self.rng.permutation(choices))))[:count]
        *taps, last = [self.placement.write(shape, mem, source) for mem in mems]
        body, end = list(operations), [last]
        if last.mem == Mem.NET_Q and self.config.words_of(shape.rows) <= self.config.softmax_words:
            end = [Instruction(op=Op.V_SOFTMAX)] * int(self.rng.integers(2)) + end
        for tap in taps:
            body.insert(int(self.rng.integers(len(body) + 1)), tap)
        return self.close(shape, [*source, *body, *end])

    def close(self, shape, instructions) -> list[int]:
        """Instruction words that set the registers of a chain, and then those of the chain."""
        product = next((i for i in instructions if i.op == Op.MV_MUL), None)
        pools = any(i.op == Op.V_POOL_MAX for i in instructions)
        entries = any(i.inc and i.op == Op.V_WR and i.mem == Mem.VECTOR_RF for i in instructions)
        names = ["rows", "iterations", "iterations_x"]
        names += ["columns"] * bool(product) + ["out_scale"] * bool(product and product.integer)
        names += ["window_vectors", "window_group"] * bool(product and product.window)
        names += ["window_x", "window_y", "window_step", "window_pitch"] * bool(pools or product and product.window)
        names += ["stride_x", "stride_y"] * instructions[0].inc
        names += ["stride_vec", "skip_vec"] * entries
        names += ["stride_out"] * any(i.inc and i.mem != Mem.VECTOR_RF for i in instructions[1:])
        bases = self.state().bases
        before = []
        if self._outside:
            before, instructions, bases = self.placement.outside.based(instructions, bases)
        chain = [*(with_base(self.config, i, bases, self.rng) for i in instructions), Instruction(op=Op.END_CHAIN)]
        return self._registers(**{n: getattr(shape, n) for n in names}) + before + [encode(i) for i in chain]
