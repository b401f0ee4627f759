"""The chains of one recurrent layer with any cell: the schedule of its formula, with slots and addresses."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from concord.compiler.cells.formula_chains import MEMORIES, FormulaChain, schedule
from concord.compiler.cells.formula_trace import (
    BOUND,
    CENTRE,
    GateProduct,
    ProductPart,
    StoredVector,
    Tracer,
    Value,
)
from concord.compiler.cells.layout import Location, layout
from concord.compiler.lib import tiling
from concord.compiler.lib.build import ModelBuild
from concord.compiler.lib.limits import Reason
from concord.compiler.lib.program import MVM, Slot, operate, read, read_codes, write, write_codes
from concord.compiler.lib.tiling import Bound, RowPart
from concord.net.layers.recurrent import Recurrent
from concord.spec.isa.instructions import WRITES, Instruction
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config


@dataclass(frozen=True, kw_only=True, slots=True)
class ProductOperand:
    """The operand of a product.

    Attributes:
        source:    Slot of the vector.
        columns:   Number of its native vectors.
        out_scale: Number of bits by which the sum is shifted right; None in block floating point.
    """

    source: Slot
    columns: int
    out_scale: int | None = None


class TimeStep:
    """The chains of a layer. Subclasses implement the arithmetic.

    Args:
        build:  Collects chains and slots.
        layer:  The layer.
        source: Slot of the input vector x, as the layer before wrote it.

    Attributes:
        content: Layer whose numbers fill the memories.
        tracer: Class that records the formula in this arithmetic.
        result: Memory of the hidden vector, if no chain reads it.
        first:  Memory in which the firmware stores the initial states.
        integer: Whether codes are integers, rather than blocks.
    """

    tracer: type[Tracer]
    result: Mem
    first: Mem
    integer: bool

    def __init__(self, build: ModelBuild, layer: Recurrent, source: Slot):
        self.build, self.layer, self.source, self.config = build, layer, source, build.config
        self.content = build.content(layer)
        self.trace = self.tracer(layer.cell, layer.output_codes)
        self.chains = schedule(self.trace)
        self._runs = _runs(self.chains)
        self.layout = layout(self.trace, self.chains, self._read_at, self.result)
        self._slots: dict[Location, Slot] = {}
        self._entries: int | None = None
        self._constants: dict[tuple[str, Mem], Slot] = {}

    @staticmethod
    def problems(layer: Recurrent, config: Config) -> list[Reason]:
        """Each reason why a machine cannot run a layer."""
        raise NotImplementedError

    def bounds(self) -> list[Bound]:
        """The bounds of all products."""
        raise NotImplementedError

    def product(self, one: GateProduct) -> ProductOperand:
        """The operand of a product."""
        raise NotImplementedError

    def columns(self, part: ProductPart) -> int:
        """Number of native vectors of the operand of a product."""
        size = self.config.vectors_of
        return {ProductPart.BOTH: size(self.layer.inputs) + size(self.layer.outputs),
                ProductPart.INPUT: size(self.layer.inputs), ProductPart.RECURRENT: size(self.layer.outputs)}[part]

    def multiply(self, one: GateProduct, chosen: np.ndarray) -> Instruction:
        """The instruction `mv_mul` for the chosen rows of the gates."""
        raise NotImplementedError

    def constant(self, stored: StoredVector) -> np.ndarray:
        """The parameters of all gates, uint16[gates, outputs], or uint16[outputs] if the gates share them."""
        raise NotImplementedError

    def number(self, stored: StoredVector) -> np.ndarray | None:
        """A number for all cells, uint16[outputs], or None for other parameters; the float network has no bounds."""
        kind, _, number = stored.name.partition(" ")
        if kind not in (CENTRE, BOUND):
            return None
        if kind == BOUND and self.content.gate_codes is None:
            return np.full(self.layer.outputs, -np.inf)
        return np.full(self.layer.outputs, float(number), np.float16).view(np.uint16)

    def state_values(self, name: str) -> np.ndarray:
        """A state before the first time step, uint16[outputs]."""
        return self.content.initial[name]

    def zero(self, name: str) -> bool:
        """Whether a state is zero before the first time step, in the machine's numbers."""
        return not self.layer.initial[name].any()

    @property
    def hidden(self) -> Slot:
        """The slot of the layer's result."""
        return self.at(self.layout.reads[self.trace.results[self.layer.cell.states[0]]][0])

    def begin(self):
        """Allocate the states, and emit chains that initialise those that a time step reads before it writes them.

        A chain writes all states that begin at zero, as many as one chain can write.
        """
        starts: dict[str, tuple[list[str], list[Slot]]] = {}
        for name, value in self.trace.results.items():
            targets = [self.at(location) for location in self.layout.reads[value]]
            if self.trace.stored(name, state=True) in self.layout.kept:
                names, slots = starts.setdefault("" if self.zero(name) else name, ([], []))
                names.append(name)
                slots += targets
        for names, slots in starts.values():
            start = self.build.allocator.constant(
                self.first, self.state_values(names[0]), f"{self.layer.name}, initial {' and '.join(names)}")
            for targets in _written_at_once(slots):
                self.build.program.chain(read(start), *map(write, targets), rows=self.layer.outputs)

    def emit(self):
        """Emit the chains of one time step."""
        for index, chain in enumerate(self.chains):
            self._copy(self.layout.before.get(index, []))
            if isinstance(chain.source, GateProduct):
                self._emit_product(index, chain)
            else:
                self.build.program.note("cell")
                self._emit(index, chain, (read(self.slot(chain.source)),), 0, {"rows": self.layer.outputs})
        self._copy(self.layout.after)
        self.build.bounds += self.bounds()

    def at(self, location: Location) -> Slot:
        """The slot of a location."""
        if location not in self._slots:
            home = location.home if isinstance(location.home, str) else "value of a cell"
            self._slots[location] = self.build.allocator.vector(
                location.mem, self.layer.outputs, f"{self.layer.name}, {home}")
        return self._slots[location]

    def slot(self, value: Value, mem: Mem | None = None, word: int = 0) -> Slot:
        """The slot of a value in a memory (by default its first one), without the first `word` words."""
        location = self.layout.location(value, mem)
        if not isinstance(value, StoredVector) or value.state:
            return self.at(location).at(word)
        if value.gate is not None:
            word += self.layer.cell.index(value.gate) * self.config.words_of(self.layer.outputs)
        return self._constant(value, location.mem).at(word)

    def products(self) -> list[list[GateProduct]]:
        """The products; those that one tall product can compute are in one list."""
        return [[self.chains[index].source for index in run] for run in self._runs]

    def set_constant(self, name: str, mem: Mem, slot: Slot) -> Slot:
        """Set the slot of parameters that chains of the time step itself write."""
        self._constants[name, mem] = slot
        return slot

    def _constant(self, stored: StoredVector, mem: Mem) -> Slot:
        key = stored.name, mem
        if key not in self._constants:
            values = self.constant(stored) if (own := self.number(stored)) is None else own
            values = tiling.stacked(self.config, values) if values.ndim == 2 else values
            self._constants[key] = self.build.allocator.constant(mem, values, f"{self.layer.name}, {stored.name}")
        return self._constants[key]

    def _emit_product(self, index: int, chain: FormulaChain):
        """Emit a chain that begins with a product, which is read from MvmQ or computed in pieces."""
        run = self._run(index)
        operand, outputs = self.product(chain.source), self.layer.outputs
        registers = {"columns": operand.columns, "out_scale": operand.out_scale}
        numbers = [self.layer.cell.index(self.chains[one].source.gate) for one in run]
        if self._pushed(run):
            if index == run[0]:
                chosen = gate_rows(self.config, numbers, RowPart(row=0, rows=outputs), self._unit)
                start = read(operand.source), self.multiply(chain.source, chosen)
                target = write_codes(self._codes(), self.integer) if self.quantized else write(MVM)
                self.build.program.chain(*start, target, rows=len(chosen), **registers)
            self.build.program.named(chain.source.gate)
            start = read(MVM)
            if self.quantized:
                start = read_codes(self._codes() + run.index(index) * self.config.vectors_of(outputs), self.integer)
            self._emit(index, chain, (start,), 0, {"rows": outputs})
            return
        for part in self._parts(run):
            chosen = gate_rows(self.config, [numbers[run.index(index)]], part)
            start, own = (read(operand.source), self.multiply(chain.source, chosen)), {"rows": part.rows}
            self.build.program.named(chain.source.gate)
            if self.quantized:
                start = (self.quantize(start, part, **registers),)
            else:
                own |= registers
            self._emit(index, chain, start, part.row // self.config.mfu_lanes, own)

    @property
    def quantized(self) -> bool:
        """Whether results of products become codes before anything else works on them."""
        return self.layer.result_format is not None

    def quantize(self, start: Sequence[Instruction], part: RowPart, **registers) -> Instruction:
        """Emit a chain that writes the codes of a product to VectorRf, and return what reads them as numbers."""
        address = self._codes() + part.row // self.config.native_dim
        self.build.program.chain(*start, write_codes(address, self.integer), rows=part.rows, **registers)
        return read_codes(address, self.integer)

    def _codes(self) -> int:
        """The first entry of VectorRf for codes; the products of the layer use it one after the other."""
        if self._entries is None:
            count = len(self.layer.cell.gates) * self.config.vectors_of(self.layer.outputs)
            self._entries = self.build.allocator.take(Mem.VECTOR_RF, count, f"{self.layer.name}, codes of products")
        return self._entries

    @property
    def _unit(self) -> int:
        """Rows of which each gate of a tall product fills whole ones: words in MvmQ, or entries of VectorRf."""
        return self.config.native_dim if self.quantized else self.config.mfu_lanes

    def _emit(self, index: int, chain: FormulaChain, start: Sequence[Instruction], word: int, registers: dict):
        instructions = [*start]
        if isinstance(chain.source, GateProduct):
            instructions += self._writes(index, chain.source, word)
        for step in chain.steps:
            slot = None if step.operand is None else self.slot(step.operand, MEMORIES[step.stage], word)
            instructions.append(operate(step.op, slot))
            instructions += self._writes(index, step.result, word)
        self.build.program.chain(*instructions, **registers)

    def _writes(self, index: int, value: Value, word: int) -> list[Instruction]:
        return [write(self.at(location).at(word)) for one, location in self.layout.writes[index] if one is value]

    def _copy(self, copies: list[tuple[Location, Location]]):
        for source, target in copies:
            self.build.program.chain(read(self.at(source)), write(self.at(target)), rows=self.layer.outputs)

    def _run(self, index: int) -> list[int]:
        return next(run for run in self._runs if index in run)

    def _parts(self, run: list[int]) -> list[RowPart]:
        """The rows of a gate in products that the machine takes."""
        return tiling.parts(self.config, self.layer.outputs, self.columns(self.chains[run[0]].source.part),
                            self.build.most_tiles)

    def _pushed(self, run: list[int]) -> bool:
        columns, most = self.columns(self.chains[run[0]].source.part), self.build.most_tiles
        if most is not None and len(run) * self.config.vectors_of(self.layer.outputs) * columns > most:
            return False
        if self.quantized:
            return len(run) * self.config.vectors_of(self.layer.outputs) * self._unit <= self.config.accumulator_rows
        return len(run) > 1 and fit_one_product(self.config, len(run), self.layer.outputs)

    def _read_at(self, index: int) -> float:
        run = self._run(index)
        if self._pushed(run):
            return run[0]
        return index + 0.5 * (len(self._parts(run)) > 1)


def _written_at_once(slots: Sequence[Slot]) -> Iterator[list[Slot]]:
    """Parts of slots, each in memories of their own, that one chain can write."""
    left = list(slots)
    while left:
        chosen: list[Slot] = []
        for slot in left:
            if len(chosen) < WRITES and slot.mem not in {one.mem for one in chosen}:
                chosen.append(slot)
        left = [slot for slot in left if slot not in chosen]
        yield chosen


def _runs(chains: list[FormulaChain]) -> list[list[int]]:
    """Runs of chains whose products multiply the same vector, so that one tall product can compute them all."""
    indices = [index for index, chain in enumerate(chains) if isinstance(chain.source, GateProduct)]
    sources = {index: chains[index].source for index in indices}
    return [list(run) for _, run in groupby(indices, lambda index: (sources[index].part, id(sources[index].operand)))]


def fit_one_product(config: Config, gates: int, outputs: int) -> bool:
    """Whether `gates` gates of `outputs` elements fit one product and MvmQ."""
    tall = gates * config.words_of(outputs)
    return tall <= config.mvmq_words and tall * config.mfu_lanes <= config.accumulator_rows


def gate_rows(config: Config, gates: Sequence[int], part: RowPart, unit: int = 0) -> np.ndarray:
    """Gate and row numbers int[rows, 2] of a part of gates, stacked; rows with number -1 pad each to whole words.

    With a `unit`, they pad each to a multiple of it.
    """
    unit = unit or config.mfu_lanes
    rows = np.full((len(gates), -(-part.rows // unit) * unit, 2), -1)
    rows[..., 0] = np.array(gates)[:, None]
    rows[:, : part.rows, 1] = part.row + np.arange(part.rows)
    return rows.reshape(-1, 2)


def select_rows(gates: np.ndarray, chosen: np.ndarray, padding: int = 0) -> np.ndarray:
    """Select rows of gates[gates, outputs, ...] by gate and row numbers; padding rows hold `padding`."""
    result = gates[chosen[:, 0], chosen[:, 1]].copy()
    result[chosen[:, 1] < 0] = padding
    return result
