# amaranth: UnusedElaboratable=no
"""Testbench of hw.host.message_link against golden.host.messages."""

import cocotb
import numpy as np
from cocotbext.axi import AxiStreamSink, AxiStreamSource
from concord.golden.host.messages import routed
from concord.hw.host.axi_streams import AxiStreams
from concord.hw.host.message_link import MessageLink
from concord.sim.drivers.axi_stream import monitor, stream_end
from concord.sim.drivers.bench import CONFIG
from concord.sim.drivers.stream import clock, start
from concord.spec.host.messages import MessageKind

CONFIGURATIONS = ("tiny", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "Mux(inside, passing, ", "new": "Mux(Const(0), passing, "},
    {"old": "o.ready & o.p.last", "new": "o.ready"},
    {"old": "inside.eq(~results.p.last)", "new": "inside.eq(1)"},
    {"old": "Mux(there, Chosen.RESULTS, Chosen.HOST)", "new": "Mux(from_host.valid, Chosen.HOST, Chosen.RESULTS)"},
)


def component(config) -> AxiStreams:
    """The unit with AXI4-Stream ports."""
    return AxiStreams(MessageLink(config))


def message(rng: np.random.Generator, kind: int) -> bytes:
    """A message of random beats after its first byte."""
    size = CONFIG.message_bytes * int(rng.integers(1, 7))
    return bytes([kind]) + rng.bytes(size - 1)


async def results_go_first(dut):
    """Watch the link: where a message may begin and both senders offer one, the one that begins is a result."""
    inside = held = False  # a message of results is under way; a message for the next machine is
    while True:
        await clock(dut)
        first = int(dut.s_axis_results_tdata.value) if dut.s_axis_results_tvalid.value else 0
        if not held and not inside and first & 0xFF == MessageKind.INPUT:
            assert dut.m_axis_o_tdata.value == first, "a message of the host goes before a result"
        if dut.s_axis_results_tvalid.value and dut.s_axis_results_tready.value:
            inside = not dut.s_axis_results_tlast.value
        if dut.m_axis_o_tvalid.value:
            held = not (dut.m_axis_o_tready.value and dut.m_axis_o_tlast.value)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5])
async def every_message_arrives_whole(dut, stall):
    """Messages of both senders arrive whole and in the order of each sender, where golden says."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    results = [message(rng, int(rng.choice([MessageKind.INPUT, MessageKind.READ, MessageKind.UPDATED])))
               for _ in range(150)]
    ours = [message(rng, int(rng.choice(list(MessageKind)))) for _ in range(100)]
    await start(dut)
    cocotb.start_soon(results_go_first(dut))
    ends = {}
    for number, (name, kind) in enumerate((("s_axis_results", AxiStreamSource), ("s_axis_from_host", AxiStreamSource),
                                           ("m_axis_to_host", AxiStreamSink), ("m_axis_o", AxiStreamSink))):
        ends[name] = stream_end(kind, dut, name, cocotb.RANDOM_SEED + number, stall)
        if kind is AxiStreamSink:
            cocotb.start_soon(monitor(dut, name))
    for name, messages in (("s_axis_results", results), ("s_axis_from_host", ours)):
        for each in messages:
            ends[name].send_nowait(each)
    host, behind = routed(results)
    for each in host:
        assert bytes((await ends["m_axis_to_host"].recv(compact=False)).tdata) == each
    waiting = [behind, ours]
    while any(waiting):
        got = bytes((await ends["m_axis_o"].recv(compact=False)).tdata)
        queue = next((queue for queue in waiting if queue and queue[0] == got), None)
        assert queue, f"{got} is none of the next messages"
        queue.pop(0)
