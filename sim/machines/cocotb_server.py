"""A cocotb test that executes the calls of `sim.machines.cocotb_client` until the client closes the connection.

Environment variables: LINK is the path of the socket, CONFIGS a list in JSON of the configurations of the machines, GAP
and STALL the probabilities of idle and stalled cycles. Several machines are those of `hw.cascade`.
"""

import json
import os
import socket

import cocotb
from cocotb.task import bridge
from concord.sim.drivers.configs import from_text
from concord.sim.machines.bus import Blocking, Bus

#: Distance between the seeds of two machines, of which each has a generator for every channel.
APART = 16


@cocotb.test()
async def serve(dut):
    """Answer calls; no simulated time passes between them."""
    configs = [from_text(text) for text in json.loads(os.environ["CONFIGS"])]
    buses = [
        Bus(dut, config, seed=cocotb.RANDOM_SEED + APART * k, gap=float(os.environ["GAP"]),
            stall=float(os.environ["STALL"]), prefix=f"machine{k}_" if len(configs) > 1 else "")
        for k, config in enumerate(configs)]
    await buses[0].start()
    for bus in buses[1:]:
        bus.watch()
    await bridge(answer)([Blocking(bus) for bus in buses], os.environ["LINK"])


def answer(links: list[Blocking], address: str) -> None:
    """Take calls from the socket at `address` and answer them; each names the machine by its number."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        with connection.makefile("rw") as lines:
            for line in lines:
                number, name, arguments = json.loads(line)
                lines.write(json.dumps(call(links[number], name, arguments)) + "\n")
                lines.flush()


def call(link: Blocking, name: str, arguments: list):
    """Execute one call; bytes in its result become hexadecimal text."""
    match name:
        case "queued" | "cycles":
            return getattr(link, name)
        case "send":
            return link.send(bytes.fromhex(arguments[0]))
        case "receive":
            return [message.hex() for message in link.receive()]
    return getattr(link, name)(*arguments)
