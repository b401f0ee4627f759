"""The files that `nnp verilog` writes beside the Verilog."""

import subprocess

import pytest
from concord.hw.cascade import Cascade
from concord.hw.nnp import NNP
from concord.nnp.lib.integration import package
from concord.sim.machines.build import environment
from concord.sim.units import component
from concord.spec.config import preset
from concord.spec.isa import Error
from concord.spec.registers import Counter, Register

TINY = preset("tiny")


@pytest.fixture(scope="module")
def files():
    return package(NNP(TINY), "nnp", "tiny", TINY)


def test_verilator_has_no_warning_but_those_that_are_waived(files, tmp_path):
    for name in ("nnp.v", "nnp.vlt"):
        (tmp_path / name).write_text(files[name])
    done = subprocess.run(["verilator", "--lint-only", "nnp.vlt", "nnp.v"], cwd=tmp_path, env=environment(),
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_signal_is_without_bits(files):
    assert "[-1:0]" not in files["nnp.v"]


def test_registers_have_access_and_meaning(files):
    page = files["registers.md"]
    assert "| 0x000 | CONTROL | write | Takes the bits of `Control` when written; reads as 0. |" in page
    assert "| 0x010 | DIGEST | read | Digest of the configuration. |" in page
    beats = f"| 0x{Register.COUNTERS + 4 * Counter.BEATS:03X} | counter BEATS | read | Number of lane groups multiplied"
    assert beats in page
    assert all(f"| {int(error)} | {error.name} |" in page for error in Error)


def test_the_ports_of_the_machine_have_their_codes(files):
    assert "| OUTPUT |" in files["ports.md"]


def test_machines_in_a_row_have_buses_of_their_own():
    page = package(Cascade([TINY] * 2), "cascade", "tiny", TINY)["ports.md"]
    for k in range(2):
        for bus in ("s_axis: AXI4-Stream, messages from the host", "s_axil: AXI4-Lite, control and counters"):
            assert f"machine{k}_{bus}" in page


def test_the_ports_of_a_unit_have_latency_and_codes():
    page = package(component("adder", TINY), "adder", "tiny", TINY)["ports.md"]
    assert "A result follows its operands by 4 clock cycles." in page
    assert "op: In. Code of the add stage." in page
    assert "| 4 | vv_max | the larger of value and operand |" in page
