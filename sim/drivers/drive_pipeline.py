"""Drive a unit without handshakes: one record in each cycle, one result `latency` cycles later."""

from collections.abc import Mapping, Sequence

from cocotb.triggers import RisingEdge
from concord.sim.drivers.stream import start


async def drive_pipeline(dut, inputs: Mapping[str, Sequence[int]], outputs: Sequence[str], latency: int) -> dict[str, list[int]]:
    """What the ports `outputs` show for each record of `inputs`; the unit is started first.

    Args:
        inputs:  Integers for each input port, equally many.
        latency: Cycles from a record to its result.
    """
    await start(dut)
    edge, driven = RisingEdge(dut.clk), [getattr(dut, name) for name in inputs]
    read = [(name, getattr(dut, name)) for name in outputs]
    records = list(zip(*inputs.values(), strict=True))
    results = {name: [] for name in outputs}
    for cycle in range(len(records) + latency):
        for port, value in zip(driven, records[min(cycle, len(records) - 1)], strict=True):
            port.value = int(value)
        await edge
        if cycle >= latency:
            for name, port in read:
                results[name].append(int(port.value))
    return results
