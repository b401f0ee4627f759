"""Products of elements with exponents of their own: every pair of codes in gates against golden."""

from amaranth import Module, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.pipeline import delay
from concord.hw.mvm.dot_products import float_cycles, float_dot
from concord.sim.machines.build import run
from concord.spec.numbers.formats import Format

COPIES = 4  #: Pairs that are multiplied in one cycle.
E4M3, E5M2, E2M1, E3M0 = (Format.floating(*element) for element in ((4, 3), (5, 2), (2, 1), (3, 0)))
EIGHT = Format(bits=8)
PAIRS = ((E4M3, E4M3), (E5M2, E5M2), (E2M1, E2M1), (E3M0, E3M0), (E5M2, EIGHT))


def latency() -> int:
    """Cycles of the slowest product."""
    return max(map(float_cycles, PAIRS))


def product_bits(fmts) -> int:
    """Bits of a signed product of two formats."""
    return sum(fmt.bits for fmt in fmts)


class Products(wiring.Component):
    """o[k] = w * x for the formats k of `PAIRS`, `latency` cycles later."""

    def __init__(self):
        super().__init__({"w": In(data.ArrayLayout(8, COPIES)), "x": In(data.ArrayLayout(8, COPIES))} | {
            f"o{k}": Out(data.ArrayLayout(signed(product_bits(fmts)), COPIES)) for k, fmts in enumerate(PAIRS)})

    def elaborate(self, platform):
        m = Module()
        for k, fmts in enumerate(PAIRS):
            for w, x, o in zip(self.w, self.x, getattr(self, f"o{k}"), strict=True):
                weight, operand = (code[:fmt.code_bits] if fmt.precision else code[:fmt.bits].as_signed()
                                   for code, fmt in zip((w, x), fmts, strict=True))
                product = float_dot(m, platform, [weight], [operand], fmts=fmts)
                m.d.comb += o.eq(delay(m, product, latency() - float_cycles(fmts)))
        return m


def test_every_pair_of_codes():
    run(Products(), "concord.tests.mvm.float_pairs", CONFIG="tiny")
