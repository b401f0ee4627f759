"""A cocotb test that executes the calls of `sim.machines.cocotb_client` until the client closes the connection.

Environment variables: LINK is the path of the socket, CONFIG the configuration of the machine, GAP and STALL the
probabilities of idle and stalled cycles.
"""

import json
import os
import socket

import cocotb
from cocotb.task import bridge
from concord.sim.drivers.configs import from_text
from concord.sim.machines.bus import Blocking, Bus


@cocotb.test()
async def serve(dut):
    """Answer calls; no simulated time passes between them."""
    bus = Bus(dut, from_text(os.environ["CONFIG"]), seed=cocotb.RANDOM_SEED, gap=float(os.environ["GAP"]),
              stall=float(os.environ["STALL"]))
    await bus.start()
    await bridge(answer)(Blocking(bus), os.environ["LINK"])


def answer(link: Blocking, address: str) -> None:
    """Take calls from the socket at `address` and answer them."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        with connection.makefile("rw") as lines:
            for line in lines:
                name, arguments = json.loads(line)
                lines.write(json.dumps(call(link, name, arguments)) + "\n")
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
