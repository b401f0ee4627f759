"""What must hold of every step of the lazy update, for a solver: its inputs are free, and its bugs must be found."""

from collections.abc import Callable
from dataclasses import dataclass

from amaranth.hdl import Assert, Assume, Cat, Const, Cover, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import Component, In
from concord.hw.lazy.lazy_step import control, set_out, stages
from concord.hw.lazy.lazy_update import lazy_block
from concord.hw.lib.stages import follow
from concord.spec.training import LazyFormat


@dataclass(frozen=True, slots=True)
class Bug:
    """A stage that computes something else.

    Attributes:
        name:   What is wrong.
        stage:  The function in hw.lazy.lazy_step that is replaced.
        change: What replaces some of its results, from the element behind the stage, the control and the format.
    """

    name: str
    stage: str
    change: Callable


class Step(Component):
    """The stages of an element without registers between them, and what is claimed of them.

    Args:
        fmt:   Widths.
        claim: Adds assertions and covers to a module, from an element behind all stages, the ports and the format.
        bug:   What is wrong, if anything.
    """

    def __init__(self, fmt: LazyFormat, claim: Callable, bug: Bug | None = None):
        self.fmt, self.claim, self.bug = fmt, claim, bug
        super().__init__({"block": In(lazy_block(fmt)), "mantissa": In(signed(fmt.bits)),
                          "residual": In(signed(fmt.residual)), "update": In(signed(fmt.update))})

    def elaborate(self, platform):
        m = Module()
        shared = named(m, control(self.block, self.fmt))
        shared = follow(shared, named(m, set_out(shared, self.fmt)))
        element = {"mantissa": self.mantissa, "residual": self.residual, "update": self.update}
        for stage in stages(self.fmt):
            made = stage(element, shared)
            if self.bug and stage.func.__name__ == self.bug.stage:
                made |= self.bug.change(follow(element, made), shared, self.fmt)
            element = follow(element, named(m, made))
        self.claim(m, element, self, self.fmt)
        return m


def named(m, values):
    """Signals for values: expressions of expressions would grow without end."""
    signals = {name: Signal(Value.cast(value).shape(), name=name) for name, value in values.items()}
    m.d.comb += [signal.eq(values[name]) for name, signal in signals.items()]
    return signals


def half_away(m, value, shift):
    """round(value / 2**shift) as the mathematics has it: the magnitude and one half, cut off."""
    magnitude = Signal(len(value))
    m.d.comb += magnitude.eq(abs(value))
    rounded = (Cat(Const(0, 1), magnitude) + (1 << shift)) >> (shift + 1)
    return Mux(value < 0, -rounded, rounded)


def alignment(m, e, ports, fmt):
    """An update is rounded half away from zero to units of the residual, or limited."""
    most = fmt.update + 1
    shift, right, left = Signal(signed(16)), Signal(range(most + 1)), Signal(range(fmt.limit.bit_length() + 1))
    magnitude, wanted = Signal(fmt.update), Signal(80)
    m.d.comb += [
        shift.eq(ports.block.exponent - ports.block.update_exponent + fmt.alignment(0, 0)),
        right.eq(Mux(shift < 0, 0, Mux(shift > most, most, shift))),
        left.eq(Mux(shift > 0, 0, Mux(shift < -fmt.limit.bit_length(), fmt.limit.bit_length(), -shift))),
        magnitude.eq(abs(ports.update)),
        wanted.eq(((Cat(Const(0, 1), magnitude) + (1 << right)) >> (right + 1)) << left)]
    limited = wanted > fmt.limit
    size = Mux(limited, fmt.limit, wanted)
    m.d.comb += [
        Assert(e["aligned"] == Mux(ports.update < 0, -size, size)),
        Assert(e["limited"] | ~limited),
        Cover(limited & (right == 1) & (ports.update < 0)),
        Cover((right == 7) & (magnitude == 64) & (e["aligned"] == -1)), Cover((left == 5) & (e["aligned"] == 96))]


def invariant(m, e, ports, fmt):
    """w * 2**t - r falls by exactly the aligned update, and at most half a unit stays behind."""
    m.d.comb += Assume(ports.block.change == 0)
    before, after = (ports.mantissa << fmt.shift) - ports.residual, (e["mantissa"] << fmt.shift) - e["residual"]
    settles(m, e, ports, after, Signal.like(before - e["aligned"], name="wanted"), before - e["aligned"],
            ports.mantissa - half_away(m, e["total"], Const(fmt.shift, 5)), fmt)
    m.d.comb += [Assert(e["moved"] == (e["mantissa"] != ports.mantissa)), Assert(~e["rounded"]),
                 Cover(~e["outside"] & (ports.mantissa - e["mantissa"] > 100) & (e["residual"] == -5))]


def change(m, e, ports, fmt):
    """A change of the exponent rounds the joint value once; the mantissa is its nearest."""
    by = ports.block.change
    m.d.comb += [Assume(by != 0), Assume(by >= fmt.changes[0]), Assume(by <= fmt.changes[-1])]
    joint = Signal(signed(fmt.joint_bits))
    m.d.comb += joint.eq((ports.mantissa << fmt.shift) - ports.residual - e["aligned"])
    right = Signal(range(fmt.changes[-1] + 1))
    m.d.comb += right.eq(Mux(by < 0, 0, by))
    new = Signal(signed(fmt.joint_bits + 1))
    m.d.comb += new.eq(Mux(by < 0, joint << 1, half_away(m, joint, right)))
    after = (e["mantissa"] << fmt.shift) - e["residual"]
    settles(m, e, ports, after, Signal.like(new, name="wanted"), new, half_away(m, new, Const(fmt.shift, 5)), fmt)
    m.d.comb += [Assert(e["rounded"] == ((by > 0) & (new << right != joint))),
                 Cover(~e["outside"] & e["rounded"] & (right == 3) & (e["mantissa"] == -77)),
                 Cover(~e["outside"] & (by == -1) & (e["mantissa"] == 99))]


def settles(m, e, ports, after, wanted, joint, mantissa, fmt):
    """The joint value is what is wanted, unless its mantissa leaves the range: then that is at the end, and alone."""
    exact, inside = Signal(signed(fmt.joint_bits + 2)), Signal()
    half = 1 << fmt.shift - 1
    m.d.comb += [
        wanted.eq(joint), exact.eq(mantissa), inside.eq((exact >= fmt.lowest) & (exact <= fmt.highest)),
        Assert(e["outside"] == ~inside), Assert((e["residual"] <= half) & (e["residual"] >= -half))]
    with m.If(inside):
        m.d.comb += [Assert(after == wanted), Assert(e["mantissa"] == exact)]
    with m.Else():
        m.d.comb += [Assert(e["mantissa"] == Mux(exact < 0, fmt.lowest, fmt.highest)), Assert(e["residual"] == 0),
                     Assert(e["limited"])]


def _printed(e, shared, fmt):
    """The source's last line as it stands: acc <- (w + acc) - w_wu."""
    return {"residual": (e["before"] + e["total"] - e["mantissa"])[:fmt.shift + 1].as_signed()}


#: What is claimed, and what breaks it.
PROOFS = {
    alignment: (
        Bug("cut off instead of rounded", "_limit", lambda e, shared, fmt: {"up": Const(0)}),
        Bug("no limit where rounding reaches it", "_limit", lambda e, shared, fmt: {
            "limited": e["above"], "up": e["value"][0]})),
    invariant: (
        Bug("the residual as the source prints it", "_step", _printed),
        Bug("the step stays in the residual", "_step", lambda e, shared, fmt: {
            "residual": e["total"][:fmt.shift + 1].as_signed()}),
        Bug("ties of negative values upwards", "_half", lambda e, shared, fmt: {"up": e["v"][fmt.shift - 1]})),
    change: (
        Bug("ties of negative values upwards", "_rescale", lambda e, shared, fmt: {"rounded": Const(1)}),
        Bug("the mantissa begins where it was", "_half", lambda e, shared, fmt: {"begin": e["before"]})),
}
