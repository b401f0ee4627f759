# amaranth: UnusedElaboratable=no
"""Testbench of hw.trainer.measure against golden.trainer.update: exponents and summaries that decide every way."""

from collections import Counter
from dataclasses import replace

import cocotb
import numpy as np
from concord.golden.lazy.tensor_layers import whole
from concord.golden.trainer.core import RefusedInstruction, TrainerCore
from concord.golden.trainer.exponents import Exponent
from concord.golden.trainer.summary import FORMAT, Summary
from concord.golden.trainer.update import check_underflow, measure
from concord.hw.trainer.measure import ExponentState, MeasureAnswer
from concord.hw.trainer.wires import Summary as SummaryWires
from concord.sim.drivers.bench import Packer, assert_equal
from concord.sim.drivers.stream import Sink, StreamSource, clock, start
from concord.spec.numbers.lazy import E_MAX, E_MIN
from concord.spec.trainer.config import TrainerConfig
from concord.spec.trainer.instructions import MeasureKind, TrainerOp, instruction

CONFIGURATIONS = ("tiny",)
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "Mux(length.any(), length + lsb - (1 + E_MIN), 0)", "new": "length + lsb - (1 + E_MIN)"},
    {"old": "clamp(found, 0, _MOST)", "new": "clamp(found, 0, _MOST + 1)"},
    {"old": "self.low & (ew.now < _SAFE)", "new": "self.low & (ew.now <= _SAFE)"},
    {"old": "self.any & ~self.summary.holds & ", "new": "self.any & "},
    {"old": "self.any & ~self.summary.holds & ", "new": "~self.summary.holds & "},
    {"old": "given.exponent.eq(clamp(self.ew.now, 0, _MOST))", "new": "given.exponent.eq(self.ew.now)"},
    {"old": "now = clamp(ew.now + ew.change, 0, _MOST)", "new": "now = ew.now + ew.change"},
    {"old": "given.changes.eq(self.ew.change != 0)", "new": "given.changes.eq(0)"},
    {"old": "for state in (self.e, self.eg):", "new": "for state in (self.e,):"},
    {"old": "e.now.eq(e.next),", "new": ""},
    {"old": "sync += [eg.now.eq(found), eg.next.eq(found)]", "new": "sync += eg.next.eq(found)"},
)
NAMES = ("e", "ew", "eg")
STATE, ANSWER, SUMMARY = Packer(ExponentState), Packer(MeasureAnswer), Packer(SummaryWires)


class Case:
    """Random states of three exponents, a summary and a rate; most guesses are right, so that all steps are reached."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.core = core = TrainerCore(config=TrainerConfig(words=256), server=np.zeros((0, 16), np.uint8))
        core.rate = whole(np.array([1]), self.number(*((E_MIN, E_MAX + 1) if rng.random() < 0.2 else (-20, 2))), 16)
        self.kind = MeasureKind(int(rng.choice([0, 1, 2, 2, 2, 2])))
        core.exponents[:3] = [self._exponent() for _ in NAMES]
        e, ew, eg = core.exponents[:3]
        for one, kind in ((e, self.kind % 2), (eg, 1)):
            if rng.random() < 0.8:
                one.next = replace(one).take(one.length)[kind]
        self.summary = self._summary()
        if self.summary.length and rng.random() < 0.2:  # right, or one beside it
            up = core.rate.exponent.item() - 15 + e.next - 15
            ew.now = min(max(self.summary.length - 1 + up + self.number(-1, 1), E_MIN), E_MAX)
        if rng.random() < 0.1:  # the host may store one more than programs make
            ew.now = E_MAX + self.number(0, 1)
        self.update = {"ew": 1, "eg": 2} if self.kind == MeasureKind.UPDATE else {}

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def _exponent(self) -> Exponent:
        rng, far = self.rng, self.rng.random() < 0.3
        low, high = (E_MIN, E_MAX + 1) if far else (-110, -95) if rng.random() < 0.3 else (-20, 20)
        return Exponent(
            now=self.number(low, high),
            next=self.number(low, high),
            length=int(rng.choice([0, self.number(1, 48)])),
            lsb=self.number(-274, 242) if far else self.number(-150, -90),
            written=bool(rng.integers(2)),
            change=int(rng.choice([0, 0, 0, self.number(FORMAT.changes[0], FORMAT.changes[-1])])),
        )

    def _summary(self) -> Summary:
        most = 1 << self.number(1, FORMAT.joint_bits - 2)
        lowest, highest = -self.number(0, most) * self.number(0, 1), self.number(0, most) * self.number(0, 1)
        return Summary(
            length=int(self.rng.choice([0, self.number(1, 31)])),
            lowest=lowest,
            highest=highest,
            largest=int(self.rng.choice([FORMAT.small - 1, FORMAT.small, 128])),
            outside=bool(self.rng.integers(2)),
            holds=bool(self.rng.random() < 0.7),
            steps=1,
        )

    def states(self) -> list[int]:
        """The states of the exponents that the instruction names, as the unit has them."""
        return [
            STATE.join(
                {
                    "now": one.now - E_MIN,
                    "next": one.next - E_MIN,
                    **{name: getattr(one, name) for name in ("length", "lsb", "written", "change")},
                }
            )
            for one in self.core.exponents[: 1 + len(self.update)]
        ]

    def wires(self) -> int:
        """The summary as the unit has it."""
        found = self.summary
        return SUMMARY.join(
            {
                "lowest": -found.highest,
                "highest": -found.lowest,
                "large": found.largest >= FORMAT.small,
                **{name: getattr(found, name) for name in ("length", "outside", "holds")},
            }
        )

    def execute(self) -> dict[str, int]:
        """Let golden execute the instruction, and say what the unit must answer."""
        i, core = instruction(TrainerOp.MEASURE, e=0, kind=self.kind, **self.update), self.core
        answer, changes = dict.fromkeys(ANSWER.parts, 0), int(core.exponents[1].change != 0)
        try:
            check_underflow(core, i, self.summary)
        except RefusedInstruction:
            return answer | {"underflow": 1}
        again = measure(core, i, self.summary)
        stands = core.counts.steps
        assert core.counts.changes == stands * changes
        return answer | {"again": int(again), "stands": stands, "changes": stands * changes}


def way(before: list[int], after: list[int], case: Case, answer: dict[str, int]) -> str:
    """What a case has decided: its kind, what is answered, and for updates which guess or exponent has changed."""
    told = [name for name, value in answer.items() if value]
    states = [[STATE.of(one) for one in side] for side in (before, after)]
    decided = (("eg", 2, "now"), ("ev", 0, "next"), ("ew", 1, "now"), ("change", 1, "change"))
    changed = [
        name
        for name, index, field in decided
        if case.kind == MeasureKind.UPDATE and states[0][index][field] != states[1][index][field]
    ]
    return " ".join([case.kind.name, *told, *changed])


#: What must happen; behind the answer are the exponents that changed.
WAYS = (
    "TENSOR",
    "TENSOR again",
    "GRADIENT",
    "GRADIENT again",
    "UPDATE underflow",
    "UPDATE again eg",
    "UPDATE again ev",
    "UPDATE again ew",
    "UPDATE again change",
    "UPDATE stands",
    "UPDATE stands changes ew change",
)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5])
async def decides_as_golden(dut, stall):
    """Measures of all kinds, one after the other; at most 30 cycles from the last state in to the first one out."""
    rng, met = np.random.default_rng(cocotb.RANDOM_SEED), Counter()
    i, o = StreamSource(dut, "i", stall=stall), Sink(dut, "o", stall=stall)
    await start(dut)
    for _ in range(1500):
        case = Case(rng)
        before, dut.kind.value, dut.summary.value = case.states(), case.kind, case.wires()
        dut.rate.value = case.core.rate.exponent.item() - E_MIN
        want = case.execute()
        await i.send(*before)
        cycles = 0
        while not dut.o__valid.value:
            cycles += 1
            await clock(dut)
        assert cycles <= 30
        assert_equal("answer", ANSWER.of(int(dut.answer.value)), want, kind=case.kind)
        after = case.states()
        for name, one, was, golden in zip(NAMES, await o.receive(len(after)), before, after, strict=False):
            assert_equal(name, STATE.of(one), STATE.of(golden), kind=case.kind, before=str(STATE.of(was)))
        met[way(before, after, case, want)] += 1
    missing = [name for name in WAYS if not met[name]]
    assert not missing, f"no example of {missing} in {met}"
