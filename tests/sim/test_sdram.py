"""The controller of an SDRAM with a model of the chip, which is as strict as a data sheet, and machines with both."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("litedram", reason="LiteDRAM is in the extra `board`")

from concord.hw.sdram.chip import CHIPS
from concord.hw.sdram.core_text import core_text
from concord.sim.machines.host import GoldenMachine, HardwareMachine
from concord.sim.sdram.sdram_parts import CHIP, STRICT, SdramBench, SdramLibrary, run_bench
from concord.spec.machine.config import preset
from concord.tests.machine.test_dram_gates import programs, result

MHZ = 100  #: Of the controller.
SMALL = replace(preset("serial"), dram_words=1 << 20, dram_bus=16)
SOON = replace(CHIP, power_up=2)  #: A chip that is soon ready.


@cache
def bench() -> SdramBench:
    """A controller and its chip."""
    return SdramBench(SMALL, MHZ, SOON)


def test_a_controller_and_its_chip():
    """Bytes, the rules of AXI4, times and rules of the chip, and the rate of long bursts."""
    run_bench(bench())


@pytest.mark.parametrize("number", STRICT)
def test_a_chip_that_wants_more(number):
    """A controller that is too fast for the chip in one time is found."""
    with pytest.raises(AssertionError) as failure:
        run_bench(bench(), strict=number)
    log = Path(re.search(r"see (\S+)", str(failure.value))[1], "log.txt").read_text()
    assert f"sdram: {STRICT[number]}" in log


def test_a_machine_with_an_sdram_does_what_golden_does():
    """Programs with Dram: all outputs, memories and events."""
    golden = GoldenMachine(SMALL)
    with HardwareMachine(SdramLibrary(SMALL, 50, gap=0.2, stall=0.2)) as gates:
        for name, program in programs(SMALL).items():
            assert result(gates, program) == result(golden, program), name


def test_the_clock_of_a_chip():
    assert [CHIP.latency(mhz) for mhz in (50, 100, 133)] == [2, 2, 3]
    assert [CHIP.cycles(20, mhz) for mhz in (50, 100, 133)] == [1, 2, 3]
    with pytest.raises(ValueError, match="an SDRAM clock of 150 MHz is too fast: this chip takes 133 MHz"):
        core_text(CHIP, 16, 150)


def test_verilog_is_equal_from_run_to_run():
    first = core_text(CHIP, 16, MHZ)
    core_text.cache_clear()
    assert core_text(CHIP, 16, MHZ) == first
    assert CHIPS["MT48LC16M16"].bytes == 32 << 20
