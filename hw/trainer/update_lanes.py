"""The arithmetic of an update, two lanes a cycle: docs/trainer.md, `update`."""

from functools import partial
from operator import or_

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lazy.lazy_step import joint, joint_shape, stages
from concord.hw.lib.arithmetic import clamp, digits, shift_digit, sum_or_difference, tree
from concord.hw.lib.pipeline import Registered, delay, delay_control, delay_in_memory, follow
from concord.hw.trainer.sum_converter import SumConverter, found_of, measured
from concord.hw.trainer.wires import MEASURED, UpdateJob
from concord.spec.numbers.lazy import ACCUMULATOR_BITS, LazyFormat, Width

FORMAT = LazyFormat()
GROUP = 2  #: Lanes of a group. A row takes 8 cycles, as long as its gradients take the tensor engine with 64 samples.
PRODUCT = 3  #: Cycles of a multiplier.
_LEFT = 4  # bits of the shift that brings the coarser term of a sum to its unit
_RIGHT = 6  # bits of the shift that brings the finer one there


def _lanes(bits: int) -> data.ArrayLayout:
    return data.ArrayLayout(signed(bits), GROUP)


_PARAMETERS = {
    "mantissas": _lanes(FORMAT.bits), "residuals": _lanes(FORMAT.residual), "momenta": _lanes(Width.GRADIENT)}
#: Parameters and exact gradients of the lanes of a group.
OldGroup = data.StructLayout({"valid": 1, **_PARAMETERS, "sums": _lanes(ACCUMULATOR_BITS)})
#: What they become.
NewGroup = data.StructLayout({"valid": 1, **_PARAMETERS})

#: The or over lanes of |number| - 1, below a bit that says "not 0".
Found = data.StructLayout({"valid": 1, "found": MEASURED})
#: What groups tell a summary, each part when it is known: S, T and P, negative joint values, and flags of lanes.
Met = data.StructLayout({
    "gradient": Found, "momentum": Found, "product": Found,
    "falls": data.StructLayout({"valid": 1, "lanes": data.ArrayLayout(joint_shape(FORMAT), GROUP)}),
    "flags": data.StructLayout({"valid": 1, **dict.fromkeys(("moved", "rounded", "limited"), GROUP),
                                **dict.fromkeys(("outside", "large", "holds"), 1)})})


class UpdateLanes(wiring.Component):
    """Make new parameters and momenta of old ones and of exact gradients.

    Members:
        job: In(UpdateJob). Held from two cycles before the first group until the last one has come out.
        i: In(OldGroup). Groups.
        o: Out(NewGroup). The same groups, `latency` cycles later.
        met: Out(Met). What they tell the summary, in part earlier.

    Timing:
        A group every cycle. A reset drops the groups under way.
    """

    def __init__(self):
        self.gradient, self.momentum = SumConverter(GROUP, 4), SumConverter(GROUP, 2)
        self.stages = stages(FORMAT)
        self.joint = next(index for index, stage in enumerate(self.stages) if stage.func is joint)
        self.total = [self._sort, self._size, *(
            lambda e, shared, low=low: self._align(e, shared, low) for low in digits(_RIGHT)), self._total]
        super().__init__({"job": In(UpdateJob), "i": In(OldGroup), "o": Out(NewGroup), "met": Out(Met)})

    @property
    def before_update(self) -> int:
        """Cycles from a group to the learning rate times its momenta."""
        return 1 + self.gradient.latency + len(self.total) + self.momentum.latency + PRODUCT

    @property
    def latency(self) -> int:
        """Cycles from a group to its new parameters."""
        return self.before_update + len(self.stages)

    def elaborate(self, platform):
        m = Module()
        i, job = delay(m, self.i, 1), self.job
        valid = [self.i.valid]
        for _ in range(self.latency):
            valid.append(delay_control(m, valid[-1], 1))
        gradients = self._convert(m, "gradient", valid[1], i.sums, job.g_right)
        late = self.gradient.latency - PRODUCT
        kept = [_product(m, job.decay, delay(m, momentum, late)) for momentum in i.momenta]
        totals = self._totals(m, platform, kept, gradients)
        cycle = 1 + self.gradient.latency + len(self.total)
        momenta = self._convert(m, "momentum", valid[cycle], totals, job.v_right)
        updates = [_product(m, job.rate, momentum) for momentum in momenta]
        self._measure(m, platform, updates, valid[self.before_update + 1])
        lanes = self._step(m, i, updates, valid)
        whole = delay_in_memory(m, "kept_momenta", Cat(momenta), PRODUCT + len(self.stages))
        m.d.comb += [self.o.valid.eq(valid[-1]), Value.cast(self.o.momenta).eq(whole)]
        for index, lane in enumerate(lanes):
            m.d.comb += [self.o.mantissas[index].eq(lane["mantissa"]), self.o.residuals[index].eq(lane["residual"])]
        self._tell(m, lanes, i, valid[-1])
        return m

    def _convert(self, m, name: str, valid, sums, right) -> list:
        """Mantissas of exact sums, which are measured."""
        m.submodules[name] = unit = getattr(self, name)
        m.d.comb += [unit.i.valid.eq(valid), unit.i.right.eq(right), unit.i.planes.eq(unit.planes_most),
                     *(one.eq(value) for one, value in zip(unit.i.sums, sums, strict=True)),
                     self.met[name].valid.eq(unit.o.valid), self.met[name].found.eq(unit.o.found)]
        return list(unit.o.mantissas)

    def _totals(self, m, platform, kept: list, gradients: list) -> list:
        """Sums of both terms, in a unit at most 15 bits finer than the coarser one.

        So one term is shifted to the left, by 15 at most, or not at all; the other one to the right, or not at all. The
        unit lies below that of the coarser term, so the kept momentum is that one where it is shifted to the left.
        """
        job, swap = self.job, Signal()
        m.d.sync += swap.eq(job.kept_right < 0)
        left = Mux(swap, -job.kept_right, -job.gradient_right)[:_LEFT]
        right = Mux(swap, job.gradient_right, job.kept_right)[:_RIGHT]
        shared = {"sum": partial(sum_or_difference, m, platform), "swap": swap, "left": delay(m, left, 1),
                  "right": delay(m, right, 1)}
        lanes = [{"kept": one, "gradient": other} for one, other in zip(kept, gradients, strict=True)]
        for stage in self.total:
            lanes = [Registered(m, follow(lane, stage(lane, shared))) for lane in lanes]
        return [lane["total"] for lane in lanes]

    def _sort(self, e, shared):
        swap, kept, gradient = shared["swap"], e["kept"], e["gradient"]
        return {"coarse": Mux(swap, kept, gradient).as_signed(), "fine": Mux(swap, gradient, kept).as_signed()}

    def _size(self, e, shared):
        """The magnitude of the finer term, with one fraction bit."""
        negative, fine = e["fine"][-1], e["fine"]
        return {"negative": negative, "value": Cat(0, shared["sum"](Const(0, len(fine)), fine.as_unsigned(), negative))}

    def _align(self, e, shared, low: int):
        made = {"value": shift_digit(e["value"], shared["right"], low)[0]}
        digit = shared["left"][low:low + 2]
        if len(digit):
            made["coarse"] = (e["coarse"] << Cat(Const(0, low), digit))[:ACCUMULATOR_BITS].as_signed()
        return made

    def _total(self, e, shared):
        """-(whole + half) is ~whole + (1 - half)."""
        half, whole, coarse = e["value"][0], e["value"][1:], e["coarse"][:ACCUMULATOR_BITS]
        whole = Cat(whole, Const(0, len(coarse) - len(whole)))
        return {"total": shared["sum"](coarse, whole, e["negative"], half ^ e["negative"]).as_signed()}

    def _measure(self, m, platform, updates: list, valid):
        found = tree([measured(delay(m, found_of(m, platform, update), 1)) for update in updates], or_)
        m.d.comb += [self.met.product.valid.eq(valid), self.met.product.found.eq(found)]

    def _step(self, m, i, updates: list, valid: list) -> list:
        """The lazy update of all lanes. Old parameters wait in a memory until the update is aligned."""
        job, limit = self.job, FORMAT.limit.bit_length()
        right = clamp(job.p_right + limit, 0, limit + FORMAT.update + 1)
        shared = {"right": delay(m, right, 1), "changes": delay(m, job.change.any(), 1),
                  "scale": delay(m, (job.change - FORMAT.changes[0])[:(len(FORMAT.changes) - 1).bit_length()], 1)}
        late = self.before_update + self.joint - 2
        old = data.View(data.StructLayout({name: _PARAMETERS[name] for name in ("mantissas", "residuals")}),
                        delay_in_memory(m, "kept_parameters", Cat(i.mantissas, i.residuals), late))
        none = {"mantissa": Const(0, signed(FORMAT.bits)), "residual": Const(0, signed(FORMAT.residual))}
        lanes = [none | {"update": update} for update in updates]
        for index, stage in enumerate(self.stages):
            if index == self.joint - 1:  # here it adds the aligned update to the residual
                lanes = [follow(lane, {"mantissa": old.mantissas[k], "residual": old.residuals[k]})
                         for k, lane in enumerate(lanes)]
            lanes = [Registered(m, follow(lane, stage(lane, shared))) for lane in lanes]
            if index == self.joint:
                m.d.comb += [self.met.falls.valid.eq(valid[self.before_update + index + 1]),
                             *(one.eq(lane["fall"]) for one, lane in zip(self.met.falls.lanes, lanes, strict=True))]
        return lanes

    def _tell(self, m, lanes: list, i, valid):
        flags, holds = self.met.flags, Cat(i.mantissas, i.residuals).any()
        m.d.comb += [flags.valid.eq(valid), flags.holds.eq(delay(m, holds, self.latency - 1))]
        m.d.comb += [flags[name].eq(Cat(lane[name] for lane in lanes)) for name in ("moved", "rounded", "limited")]
        m.d.comb += [flags[name].eq(Cat(lane[name] for lane in lanes).any()) for name in ("outside", "large")]


def _product(m, factor, value):
    """The product with a factor that all lanes have, PRODUCT cycles later."""
    return delay(m, delay(m, factor, 1) * delay(m, value, 1), PRODUCT - 1)
