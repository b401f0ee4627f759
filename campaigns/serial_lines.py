"""Messages over serial lines that lose, double, flip and delay bytes, to machines in gates: `nox -s serial`.

Each message is written to a memory and read back. The throughput is measured on lines without faults, for messages in
one direction at a time.
"""

import time
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer
from concord.golden.host.messages import read_message, words_of, write_message
from concord.lib.processes import calls
from concord.sim.machines.host import HardwareMachine
from concord.sim.machines.line import WiredBoard, build_line
from concord.sim.machines.line_faults import Faults
from concord.sim.machines.self_test import self_test
from concord.sim.machines.serial_link import HostLink
from concord.sim.machines.serial_port import BAUD
from concord.spec.host.messages import unpack
from concord.spec.isa.memories import Mem, depth
from concord.spec.machine.machine_file import find_config, machine_name
from rich.console import Console
from rich.table import Table

BATCH = 100  #: Messages over one link.
BITS = 10  #: Bits of the line for a byte.


@dataclass(frozen=True, slots=True, kw_only=True)
class LineTally:
    """What became of messages.

    Attributes:
        messages: Number of messages that came back. bits: Number of their bits that are wrong.
        faults:   Number of faults of the line. damaged, repeated: Number of frames.
        seconds:  Time of the line.
    """

    messages: int
    bits: int
    faults: int
    damaged: int
    repeated: int
    seconds: float


def carry(machine: str, clock: float, seed: int, count: int, rate: float) -> LineTally:
    """Write and read messages of random sizes over one line."""
    config, rng = find_config(machine), np.random.default_rng(seed)
    faults = Faults(seed=2 * seed, rate=rate), Faults(seed=2 * seed + 1, rate=rate)
    line = WiredBoard(config, clock=clock, faults=faults)
    link, most, bits = HostLink(config, line, patience=60), min(64, depth(config, Mem.INITIAL_VRF)), 0
    with HardwareMachine(link) as host:
        for _ in range(count // 2):
            words = rng.integers(0, 1 << 16, (int(rng.integers(1, most)), config.mfu_lanes)).astype(np.uint16)
            host.send(write_message(config, Mem.INITIAL_VRF, words),
                      read_message(config, Mem.INITIAL_VRF, len(words)))
            (answer,) = host.receive()
            found = words_of(config, unpack(config, answer, to_machine=False))
            bits += int(np.bitwise_count(found ^ words).sum())
        seconds = line.now()
        bits += self_test(host).bits
    return LineTally(messages=count, bits=bits, faults=sum(each.count for each in faults), damaged=link.damaged,
                   repeated=link.repeated, seconds=seconds)


def throughput(machine: str, clock: float, count: int) -> tuple[float, float]:
    """Share of the line's bytes that are bytes of messages, to the machine and from it."""
    config = find_config(machine)
    line = WiredBoard(config, clock=clock)
    with HardwareMachine(HostLink(config, line, patience=60)) as host:
        words = np.zeros((min(64, depth(config, Mem.INITIAL_VRF)), config.mfu_lanes), np.uint16) + 0x3C00
        shares = []
        for message in (write_message(config, Mem.INITIAL_VRF, words),
                        read_message(config, Mem.INITIAL_VRF, len(words))):
            begin = line.now()
            host.send(*[message] * count)
            host.settle()
            carried = sum(map(len, host.receive())) or count * len(message)
            shares.append(carried * BITS / BAUD / (line.now() - begin))
    return shares[0], shares[1]


def main(
    machine: Annotated[str, typer.Option("--preset", "--config", metavar="MACHINE", help="The machine.")] = "tiny",
    clock: Annotated[float, typer.Option(help="Its clock in MHz; the line has 3 Mbaud.")] = 12.0,
    messages: Annotated[int, typer.Option(help="Number of messages.")] = 10_000,
    rate: Annotated[float, typer.Option(help="Probability of a fault of each byte.")] = 1e-3,
    processes: Annotated[int, typer.Option("-n", help="Number of processes.")] = 2,
) -> None:
    """Carry messages over faulty lines; the exit code is 1 if a bit is wrong."""
    console, begin = Console(), time.monotonic()
    build_line(find_config(machine), clock, BAUD)
    inward, outward = throughput(machine, clock, max(1, min(60, messages)))
    done = []
    sizes = [min(BATCH, messages - first) for first in range(0, messages, BATCH)]
    for _, one in calls(carry, [(machine, clock, seed, size, rate) for seed, size in enumerate(sizes)], processes):
        done.append(one)
        console.print(f"{sum(each.messages for each in done):,} messages, {time.monotonic() - begin:.0f} s",
                      highlight=False)
    table = Table("messages", "faults", "frames damaged", "frames repeated", "bits wrong", "seconds of the line",
                  title=f"{machine_name(machine)} at {clock:g} MHz, {clock * 1e6 / BAUD:.1f} cycles a bit",
                  title_justify="left")
    names = "messages", "faults", "damaged", "repeated", "bits", "seconds"
    table.add_row(*(f"{sum(getattr(one, name) for one in done):,.{0 if name != 'seconds' else 1}f}" for name in names))
    console.print(table)
    console.print(f"throughput without faults, of the line's {BAUD / BITS:,.0f} bytes a second: {100 * inward:.1f} % "
                  f"to the machine, {100 * outward:.1f} % from it", highlight=False)
    raise typer.Exit(any(one.bits for one in done))


if __name__ == "__main__":
    typer.run(main)
