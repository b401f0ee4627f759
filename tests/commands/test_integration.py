"""The files that `nnp verilog` writes beside the Verilog."""

from dataclasses import fields, replace

import pytest
from concord.campaigns.lint_machines import random_machine, warnings
from concord.handover.integration import WAIVERS, package
from concord.hw.cascade import Cascade
from concord.hw.nnp import NNP
from concord.hw.serial_nnp import require_memory
from concord.hw.units import component
from concord.spec.host.registers import Counter, Register
from concord.spec.isa.instructions import Error
from concord.spec.machine.config import Config, preset

TINY = preset("tiny")


MACHINE = replace(TINY, tile_engines=2)


@pytest.fixture(scope="module")
def files():
    return package(NNP(MACHINE), "nnp", "", MACHINE)


def test_verilator_has_no_warning_but_those_that_are_waived(files):
    assert warnings(files) == ""


def test_verilator_has_no_warning_of_a_random_machine():
    """This one has lane groups as long as a native vector; `nox -s lint_machines` draws more, and lints all presets."""
    assert warnings(package(NNP(random_machine(2)), "nnp", "", random_machine(2))) == ""


def test_verilator_5_006_knows_the_waived_warnings():
    assert not WAIVERS.keys() & {"WIDTHEXPAND", "WIDTHTRUNC", "WIDTHXZEXPAND", "ASCRANGE"}  # names of later versions


def test_random_machines_differ_in_every_attribute_of_the_hardware():
    machines = [random_machine(seed) for seed in range(40)]
    assert machines == [random_machine(seed) for seed in range(40)]
    alike = [name.name for name in fields(Config) if len({getattr(machine, name.name) for machine in machines}) < 2]
    assert alike == ["clock_mhz"]


def test_registers_have_access_and_meaning(files):
    page = files["registers.md"]
    assert "| 0x000 | CONTROL | write | Takes the bits of `Control` when written; reads as 0. |" in page
    assert "| 0x010 | DIGEST | read | Digest of the configuration. |" in page
    beats = f"| 0x{Register.COUNTERS + 4 * Counter.BEATS:03X} | counter BEATS | read | Number of lane groups multiplied"
    assert beats in page
    assert all(f"| {int(error)} | {error.name} |" in page for error in Error)


def test_the_ports_of_the_machine_have_their_codes(files):
    assert "| OUTPUT |" in files["ports.md"]


def test_a_machine_with_dram_has_a_port_to_it():
    machines = [replace(TINY, dram_words=1 << 20, dram_bus=8)] * 2
    page = package(NNP(machines[0]), "nnp", "", machines[0])
    assert "## m_axi: AXI4, the memory outside the chip" in page["ports.md"]
    assert all(f".m_axi_{wire}(m_axi_{wire})" in page["nnp_instance.v"] for wire in ("araddr", "rdata", "wstrb", "bid"))
    assert "m_axi_" not in package(NNP(TINY), "nnp", "", TINY)["nnp_instance.v"]
    row = package(Cascade(machines), "cascade", "", machines[0])["ports.md"]
    assert all(f"machine{k}_m_axi: AXI4, the memory outside the chip" in row for k in range(2))


def test_a_board_has_no_memory():
    with pytest.raises(ValueError, match=r"^a board has no memory for this machine's 1,000 words of Dram: choose a "):
        require_memory(replace(TINY, dram_words=1000, dram_bus=8), 0)
    require_memory(TINY, 0)


def test_a_memory_of_a_board_is_too_small():
    config = replace(TINY, dram_words=1001, dram_bus=8)
    require_memory(config, 4004)
    with pytest.raises(ValueError, match="1,001 words of Dram are 4,004 bytes, and the board has a memory of 4,000: "
                                         "choose a machine whose dram_words is at most 1000"):
        require_memory(config, 4000)


def test_machines_in_a_row_have_buses_of_their_own():
    page = package(Cascade([TINY] * 2), "cascade", "tiny", TINY)["ports.md"]
    for k in range(2):
        for bus in ("s_axis: AXI4-Stream, messages from the host", "s_axil: AXI4-Lite, control and counters"):
            assert f"machine{k}_{bus}" in page


def test_the_ports_of_a_unit_have_latency_and_codes():
    page = package(component("adder", TINY), "adder", "tiny", TINY)["ports.md"]
    assert "A result follows its operands by 5 clock cycles." in page
    assert "op: In. Code of the add stage." in page
    assert "| 4 | vv_max | the larger of value and operand |" in page
