"""Adds start values to totals and rounds them to binary16, as golden.mvm.converter does."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import gated_sum
from concord.hw.lib.binary16_rounder import Binary16Rounder
from concord.hw.lib.float16 import INFINITY
from concord.hw.lib.payloads import word
from concord.hw.lib.pipeline import delay, delay_control
from concord.hw.mvm.overflow import EXCESS, OverflowCounter
from concord.spec.machine.config import Config


def conversion(config: Config) -> data.StructLayout:
    """Settings for one word of sums, of which the first `lanes` lanes are rows of the product."""
    return data.StructLayout({"valid": 1, "bias": 1, "integer": 1, "out_scale": signed(6),
                              "lanes": range(config.mfu_lanes + 1)})


class Converter(wiring.Component):
    """Computes binary16(wrap(sum + start) * 2**-out_scale) in integer mode, else binary16(sum * 2**-acc_frac).

    Args:
        config: The machine.

    Members:
        i: In {valid, bias, integer, out_scale, lanes}. `bias` adds `start`; lanes from `lanes` on give +0.
        sums, start: In. Integers [lane], `sums_after` cycles after `i`.
        valid: Out(1). `o` holds a word.
        o: Out(word). Result.
        partial, excess_partial: Out. Sums with a start value that do not fit the accumulator.
        output, excess_output: Out. Totals beyond output_bits, or rounded to an infinity. All four are 0 unless the
            configuration counts them.

    Timing:
        One word a cycle, `latency` cycles after `i`. Never stalls.
    """

    sums_after = 1
    latency = sums_after + 1 + Binary16Rounder.latency

    def __init__(self, config: Config):
        self.config = config
        count = range(config.mfu_lanes + 1)
        super().__init__({
            "i": In(conversion(config)), "valid": Out(1), "o": Out(word(config)),
            "sums": In(data.ArrayLayout(signed(config.sum_bits), config.mfu_lanes)),
            "start": In(data.ArrayLayout(signed(config.bias_bits), config.mfu_lanes)),
            "partial": Out(count), "excess_partial": Out(EXCESS), "output": Out(count), "excess_output": Out(EXCESS)})

    def elaborate(self, platform):
        m = Module()
        config, i = self.config, self.i
        used = [delay(m, lane < i.lanes, self.sums_after) for lane in range(config.mfu_lanes)]
        biased = [delay(m, i.bias & (lane < i.lanes), self.sums_after) for lane in range(config.mfu_lanes)]
        exact = [gated_sum(m, platform, *each) for each in zip(used, self.sums, biased, self.start, strict=True)]
        totals = [delay(m, value[:config.sum_bits].as_signed(), 1) for value in exact]
        scale = delay(m, Mux(i.integer, i.out_scale, config.acc_frac), self.sums_after + 1)
        scales = range(min(-32, config.acc_frac), max(31, config.acc_frac) + 1)
        m.d.comb += self.valid.eq(delay_control(m, i.valid, self.latency))
        for k, total in enumerate(totals):
            m.submodules[f"lane{k}"] = lane = Binary16Rounder(config.sum_bits, scales)
            m.d.comb += [lane.value.eq(total), lane.scale.eq(scale), self.o[k].eq(lane.o)]
        if config.count_overflows:
            self._count(m, exact, totals)
        return m

    def _count(self, m, exact, totals):
        """Overflow events of the sums with a start value and of the totals."""
        config, i, lanes = self.config, self.i, self.config.mfu_lanes
        m.submodules.partial = partial = OverflowCounter(lanes, len(exact[0]), config.sum_bits)
        m.submodules.totals = output = OverflowCounter(lanes, config.sum_bits, config.output_bits)
        m.submodules.infinite = infinite = OverflowCounter(lanes, 2, 1)
        # A word counts in one of the two ways; both counts leave at the same time.
        late = self.latency - self.sums_after - 1
        integer, used, valid = delay(m, i.integer, self.latency), delay(m, i.lanes, self.latency), self.valid
        m.d.comb += [
            partial.valid.eq(delay_control(m, i.valid, self.sums_after)),
            partial.used.eq(delay(m, i.lanes, self.sums_after)), partial.values.eq(Cat(exact)),
            output.valid.eq(valid & integer), output.used.eq(used),
            output.values.eq(Cat(delay(m, total, late) for total in totals)),
            infinite.valid.eq(valid & ~integer), infinite.used.eq(used),
            infinite.values.eq(Cat(Cat(lane[:15] == INFINITY, 0) for lane in self.o)),
            self.partial.eq(partial.misfits), self.excess_partial.eq(partial.excess),
            self.output.eq(infinite.misfits | output.misfits), self.excess_output.eq(infinite.excess | output.excess)]
