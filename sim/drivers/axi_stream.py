"""Bus models of cocotbext-axi at the ports of a unit, with random pauses, and a monitor of the AXI4-Stream protocol."""

import random
from collections.abc import Iterator

from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiStreamBus


def pauses(seed: int, stall: float) -> Iterator[bool]:
    """An endless pause generator for cocotbext-axi: True in a share `stall` of the cycles."""
    choice = random.Random(seed)
    while True:
        yield choice.random() < stall


def stream_end(kind: type, dut, prefix: str, seed: int, stall: float):
    """The source or sink, an AxiStreamSource or AxiStreamSink, at the bus `prefix`; it pauses in a share of cycles."""
    end = kind(AxiStreamBus.from_prefix(dut, prefix), dut.clk, dut.rst)
    end.log.setLevel("WARNING")
    if stall:
        end.set_pause_generator(pauses(seed, stall))
    return end


def lite_master(dut, prefix: str, seed: int, stall: float) -> AxiLiteMaster:
    """The AXI4-Lite master at the bus `prefix`, whose channels pause in a share of cycles."""
    master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, prefix), dut.clk, dut.rst)
    write, read = master.write_if, master.read_if
    for part in (write, read):
        part.log.setLevel("WARNING")
    channels = (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel)
    for number, channel in enumerate(channels if stall else (), seed):
        channel.set_pause_generator(pauses(number, stall))
    return master


async def monitor(dut, prefix: str):
    """Fail the test when `prefix`_tvalid drops or a beat changes before it is taken."""
    data, last, valid, ready = (getattr(dut, f"{prefix}_{wire}") for wire in ("tdata", "tlast", "tvalid", "tready"))
    edge, held = RisingEdge(dut.clk), None
    while True:
        await edge
        beat = (int(data.value), int(last.value)) if valid.value and not dut.rst.value else None
        assert held is None or dut.rst.value or beat == held, f"{prefix}: {held} became {beat} before it was taken"
        held = None if ready.value else beat
