"""Decodes instructions of a trainer, from tables of `spec.trainer.instructions`, and finds those that are ILLEGAL."""

from functools import reduce
from operator import or_

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.spec.trainer.config import NONE, TrainerConfig
from concord.spec.trainer.instructions import FIELDS, OPCODE, RULES, SIZES, WORD, TrainerInstruction, TrainerOp

SLOTS = 5  #: Most views that an instruction names.
#: Which instruction it is, one bit for each opcode.
Kind = data.StructLayout({op.name.lower(): 1 for op in TrainerOp})
#: Exponents of an instruction by their part: those of two operands, the bias or parameter, and what is measured.
EXPONENTS = {
    TrainerOp.PRODUCT: ("ea", "eb", "ebias", "ey"), TrainerOp.POOL: ("ex", None, None, "ey"),
    TrainerOp.POOL_BACK: ("ex", None, None, "ey"), TrainerOp.ADD: ("ea", "eb", None, "ey"),
    TrainerOp.UPDATE: (None, "eg", "ew", "ev"), TrainerOp.MEASURE: ("e", "ew", "eg", None)}


def fields(word, op: TrainerOp) -> dict[str, Value]:
    """The numbers in the fields of an instruction of both words, signed where they are."""
    found = {name: word[field.lo:field.lo + field.width] for name, field in FIELDS[op].items()}
    return {name: value.as_signed() if FIELDS[op][name].kind == "signed" else value for name, value in found.items()}


def slots(op: TrainerOp) -> list[str]:
    """Names of the views that an instruction works on, in their order."""
    return [] if op == TrainerOp.TENSOR else [name for name, field in FIELDS[op].items() if "view" in field.kind]


class InstructionDecoder(wiring.Component):
    """Decodes one instruction.

    Args:
        config: Sizes.

    Members:
        word: In(256). An instruction of one word or two, low word first.
        kind: Out(Kind). Its opcode; no bit where it is unknown.
        views: Out(5 numbers of 5 bits). Views that it works on; NONE where it has fewer.
        exponents: Out(4 numbers of 6 bits). Exponents, as `EXPONENTS` has them.
        illegal: Out(1). It is ILLEGAL.

    Timing:
        All outputs are one cycle later.
    """

    def __init__(self, config: TrainerConfig):
        self.config = config
        super().__init__({
            "word": In(2 * WORD), "kind": Out(Kind), "views": Out(data.ArrayLayout(5, SLOTS)),
            "exponents": Out(data.ArrayLayout(6, 4)), "illegal": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.d.sync += [self.illegal.eq(1), self.kind.eq(0)]
        m.d.sync += [view.eq(NONE) for view in self.views]
        with m.Switch(self.word[:OPCODE.width]):
            for op in TrainerOp:
                with m.Case(op):
                    values = fields(self.word, op)
                    m.d.sync += [self.kind[op.name.lower()].eq(1), self.illegal.eq(self._illegal(op, values))]
                    m.d.sync += [view.eq(values[name]) for view, name in zip(self.views, slots(op), strict=False)]
                    m.d.sync += [exponent.eq(values[name]) for exponent, name in zip(
                        self.exponents, EXPONENTS.get(op, ()), strict=False) if name]
        return m

    def _illegal(self, op: TrainerOp, values: dict[str, Value]):
        """Whether an instruction of this opcode has bits that it does not take, or breaks a rule."""
        taken = {bit for field in (OPCODE, *FIELDS[op].values()) for bit in range(field.lo, field.lo + field.width)}
        wrong = [Cat(self.word[bit] for bit in range(WORD * SIZES[op]) if bit not in taken).any()]
        counts = {"view": self.config.views, "base": self.config.bases, "exponent": self.config.exponents}
        for name, field in FIELDS[op].items():
            count = counts.get(field.kind.removesuffix("?"), 1 << field.width)
            if count < 1 << field.width:
                none = (values[name] == NONE) & field.kind.endswith("?")
                wrong.append((values[name] >= count) & ~none)
        rules = RULES.get(op, lambda _: ())(TrainerInstruction(op, values))
        return reduce(or_, [*wrong, *(Value.cast(rule) for rule, _ in rules)], Const(0, 1))
