"""Schedule a time step: group its operations into chains through the stages of both multi-function units.

A chain begins with a product, or with a value that lies in memory, and continues as long as a later stage can
compute a value whose other operand is available. The schedule only depends on the formula, not on sizes or memories.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from concord.compiler.cells.formula_trace import (
    GateProduct,
    StoredVector,
    TracedOperation,
    TracedPointWise,
    Tracer,
    Value,
    operands,
)
from concord.spec.isa.instructions import Op, opcode
from concord.spec.isa.memories import OPERAND_MEMORIES
from concord.spec.isa.operations import ACTIVATIONS, MFUS, Stage, next_mfu, position
from concord.spec.isa.operations import Operation as MachineOperation

#: Memories of the operands of the six stages, in their order; activations have none.
MEMORIES = tuple(OPERAND_MEMORIES[stage][mfu] if stage in OPERAND_MEMORIES else None
                 for mfu, stage in product(range(MFUS), Stage))
#: Stage of each kind of operation of two values, and its operation. Subtraction has one for each order of its operands.
STAGE = {TracedPointWise.ADD: Stage.ADD, TracedPointWise.SUB: Stage.ADD, TracedPointWise.MUL: Stage.MUL,
         TracedPointWise.LARGER: Stage.ADD}
OPERATIONS = {TracedPointWise.ADD: MachineOperation.VV_ADD, TracedPointWise.MUL: MachineOperation.VV_MUL,
              TracedPointWise.LARGER: MachineOperation.VV_MAX} | ACTIVATIONS


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FormulaStep:
    """One operation of a chain.

    Attributes:
        op:      The instruction's opcode.
        stage:   Index of the stage, 0 to 5.
        operand: The value that lies in the stage's memory; None for an activation.
        result:  The value that the operation computes.
    """

    op: Op
    stage: int
    operand: Value | None
    result: TracedOperation


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FormulaChain:
    """A chain without addresses.

    Attributes:
        source: The product or value that it begins with.
        steps:  The operations of the chain, in order.
    """

    source: Value
    steps: tuple[FormulaStep, ...]

    @property
    def values(self) -> list[Value]:
        """The values that the chain computes, in order."""
        made = [step.result for step in self.steps]
        return [self.source, *made] if isinstance(self.source, GateProduct) else made


def schedule(trace: Tracer) -> list[FormulaChain]:
    """The chains that compute all values of a trace, in order."""
    ready = _Ready(trace)
    chains = []
    while (source := ready.source()) is not None:
        chains.append(FormulaChain(source=source, steps=tuple(ready.steps(source))))
        ready.store(chains[-1].values)
    return chains


class _Ready:
    """The values that are available, and those that can be computed from them.

    Args:
        trace: The formula of the cell.
    """

    def __init__(self, trace: Tracer):
        stored = [value for value in trace.computed
                  if isinstance(value, GateProduct) and isinstance(value.operand, StoredVector)]
        # Products of what is there come first.
        self._left = [*stored, *(value for value in trace.computed if value not in stored)]
        self._operand: Value | None = None
        self._there: list[Value] = []
        self._uses: dict[Value, list[TracedOperation]] = defaultdict(list)
        for value in trace.computed:
            for operand in value.operands if isinstance(value, TracedOperation) else ():
                self._uses[operand].append(value)

    def store(self, values: list[Value]):
        """Note that values lie in memory."""
        self._there += values

    def source(self) -> Value | None:
        """The first value of the next chain: one to use the last value, the next product, or any computable one."""
        last = self._there[-1:]
        for value in [use for done in last for use in self._uses[done]]:
            if value in self._left and self._computable(value):
                return self._begin(value)
        products = [value for value in self._left if isinstance(value, GateProduct) and self._computable(value)]
        if products:
            # Products of the same operand follow each other: the vector after x can then be replaced.
            product = next((one for one in products if one.operand is self._operand), products[0])
            self._left.remove(product)
            self._operand = product.operand
            return product
        for value in self._left:
            if isinstance(value, TracedOperation) and self._computable(value):
                return self._begin(value)
        return None

    def steps(self, value: Value) -> Iterator[FormulaStep]:
        """The operations that can follow a value in one chain."""
        stage, before = -1, [value] if isinstance(value, GateProduct) else []
        while (found := self._next(value, stage, before)) is not None:
            self._left.remove(found.result)
            yield found
            value, stage = found.result, found.stage
            before.append(value)

    def _next(self, value: Value, stage: int, before: list[Value]) -> FormulaStep | None:
        for result in self._uses[value]:
            others = list(result.operands)
            others.remove(value)
            there = all(self._is_there(other) and other not in before for other in others)
            kind = STAGE.get(result.kind, Stage.ACT)
            mfu = next_mfu(kind, stage)
            if result in self._left and there and mfu is not None:
                return FormulaStep(op=_opcode(result, value, mfu), stage=position(kind, mfu),
                                   operand=others[0] if others else None, result=result)
        return None

    def _begin(self, value: TracedOperation) -> Value:
        """The operand with which a chain begins to compute a value: the one that was computed last."""
        return max(value.operands, key=lambda operand: (
            self._there.index(operand) if operand in self._there else -1, getattr(operand, "state", False)))

    def _is_there(self, value: Value) -> bool:
        return isinstance(value, StoredVector) or value in self._there

    def _computable(self, value: GateProduct | TracedOperation) -> bool:
        return all(self._is_there(operand) for operand in operands(value))


def _opcode(result: TracedOperation, value: Value, mfu: int) -> Op:
    """The opcode of an operation in a chain whose current value is `value`."""
    if result.kind is TracedPointWise.SUB:
        first = result.operands[0] is value
        return opcode(MachineOperation.VV_A_SUB_B if first else MachineOperation.VV_B_SUB_A, mfu)
    return opcode(OPERATIONS[result.kind], mfu)
