# amaranth: UnusedElaboratable=no
"""Testbench of hw.host.axi_streams around the lazy update, driven by cocotbext-axi and compared with golden."""

import cocotb
import numpy as np
from cocotbext.axi import AxiStreamFrame, AxiStreamSink, AxiStreamSource
from concord.hw.host.axi_streams import AxiStreams, fields
from concord.hw.lazy.exponent_search import COUNTS, pass_answer
from concord.hw.lazy.lazy_update import LazyUpdate, lazy_block, lazy_elements, lazy_parameters
from concord.sim.drivers.axi_stream import stream_end
from concord.sim.drivers.bench import CONFIG
from concord.sim.drivers.stream import start
from concord.sim.stimulus.lazy_passes import lazy_format, random_pass
from concord.spec.numbers.lazy import E_MIN

CONFIGURATIONS = ("tiny", "serial")
TESTED = ("tiny", "serial")


def component(config) -> AxiStreams:
    """The lazy update with AXI4-Stream ports."""
    return AxiStreams(LazyUpdate(lazy_format(config), config.mfu_lanes))


FMT, LANES = lazy_format(CONFIG), CONFIG.mfu_lanes


def to_bytes(shape, transfers: list[dict]) -> bytes:
    """The bytes of tdata for transfers. Padding bits above a field are noise, which the unit must ignore."""
    packed = bytearray()
    for values in transfers:
        for field in fields(shape):
            value = int(values[field.name]) & (1 << field.width) - 1
            noise = int(np.random.default_rng(value).integers(256)) << field.width & (1 << 8 * field.bytes) - 1
            packed += (value | noise).to_bytes(field.bytes, "little")
    return bytes(packed)


def from_bytes(shape, raw: bytes) -> list[dict]:
    """Unpack bytes of tdata into transfers: dictionaries of values by field name."""
    names = fields(shape)
    size = sum(field.bytes for field in names)
    return [{field.name: int.from_bytes(raw[at + field.offset // 8:][:field.bytes], "little", signed=field.signed)
             for field in names} for at in range(0, len(raw), size)]


def words(**arrays) -> list[dict]:
    """Cut arrays into transfers of LANES elements, padded with zeros after the last element."""
    padded = {name: np.pad(values, (0, -len(values) % LANES)).reshape(-1, LANES) for name, values in arrays.items()}
    return [{f"{name}[{k}]": value for name, row in zip(padded, rows, strict=True) for k, value in enumerate(row)}
            for rows in zip(*padded.values(), strict=True)]


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.4])
async def matches_golden(dut, stall):
    """Tensors go in as packets; each part of an answer comes out in bytes of its own."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    kinds = {"s_axis_block": AxiStreamSource, "s_axis_i": AxiStreamSource, "m_axis_o": AxiStreamSink,
             "m_axis_answer": AxiStreamSink}
    ends = {name: stream_end(kind, dut, name, seed, stall) for seed, (name, kind) in enumerate(kinds.items())}
    await start(dut, "clear")
    passes = [random_pass(rng, FMT, int(rng.integers(1, 5 * LANES))) for _ in range(100)]
    for given in passes:
        head = {"exponent": given.old.exponent - E_MIN, "update_exponent": given.update_exponent - E_MIN,
                "change": given.change}
        ends["s_axis_block"].send_nowait(AxiStreamFrame(to_bytes(lazy_block(FMT), [head])))
        elements = words(mantissas=given.old.mantissas, residuals=given.old.residuals, updates=given.update)
        ends["s_axis_i"].send_nowait(AxiStreamFrame(to_bytes(lazy_elements(FMT, LANES), elements)))
    for given in passes:
        done = given.golden
        packet = from_bytes(lazy_parameters(FMT, LANES), bytes((await ends["m_axis_o"].recv()).tdata))
        assert packet == words(mantissas=done.mantissas, residuals=done.residuals)
        (answer,) = from_bytes(pass_answer(FMT), bytes((await ends["m_axis_answer"].recv()).tdata))
        assert answer == {"repeat": done.repeat, "change": done.change} | {name: getattr(done, name) for name in COUNTS}
