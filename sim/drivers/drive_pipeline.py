"""Drive a unit without handshakes: one record in each cycle, one result `latency` cycles later."""

from collections.abc import Mapping, Sequence

from cocotb.triggers import RisingEdge
from concord.sim.drivers.stream import start


async def drive_pipeline(dut, inputs: Mapping[str, Sequence[int]], outputs: Sequence[str],
                         latency: int) -> dict[str, list[int]]:
    """Start the unit, feed it one record of `inputs` a cycle, and return what its ports `outputs` show for each record.

    Args:
        inputs:  Integers for each input port, one a record; all ports have equally many.
        outputs: Names of the output ports.
        latency: Number of cycles from a record to its result.
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
