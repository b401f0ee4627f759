"""Frames that a host does not send, to the link in gates and to golden's: both take them, or drop them."""

import zlib

import pytest
from amaranth.sim import Simulator
from concord.golden.machine import Machine
from concord.golden.serial_port import GoldenPort
from concord.hw.host.serial_link import SerialLink
from concord.spec.host.registers import Register
from concord.spec.host.serial import ANSWER, LAST, REQUEST, Flag, FrameKind, stuff, unpack
from concord.spec.machine.config import preset

CONFIG = preset("tiny")
BYTE = 12  #: Cycles of a byte on the line.


def raw(number: int, kind: int, body: bytes = b"") -> bytes:
    data = bytes([number, *body, kind])
    return stuff(data + zlib.crc32(data).to_bytes(4, "little")) + b"\0"


NONE = REQUEST.pack(0, 0, 0)
OPEN, POLL = raw(1, FrameKind.OPEN, NONE), raw(9, FrameKind.POLL, NONE)
FRAMES = {
    "a write that is short": [raw(2, FrameKind.WRITE, bytes(3))], "a read without a body": [raw(2, FrameKind.READ)],
    "a request that is long": [raw(2, FrameKind.READ, NONE + b"1")], "an unknown kind": [raw(2, 7, NONE)],
    "an answer": [raw(2, FrameKind.ANSWER, ANSWER.pack(0, 0, 0, 0, 0))],
    "data without a body": [raw(0, FrameKind.DATA, b"1234"), raw(1, FrameKind.DATA | LAST)],
    "data that is long": [raw(0, FrameKind.DATA | LAST, bytes(range(1, 249)))],
    "a read": [raw(2, FrameKind.READ, REQUEST.pack(0, Register.DIGEST, 0))],
    "a write": [raw(2, FrameKind.WRITE, REQUEST.pack(0, Register.PEER, 7))],
}


class Gates:
    """The link in gates, whose machine takes every beat, and sends without an end if it is `full`."""

    def __init__(self, frames: list[bytes], full: bool = False):
        self.dut, self.line, self.full = SerialLink(CONFIG), list(b"".join(frames)), full
        self.accesses, self.beats, self.came = [], [], bytearray()
        simulator = Simulator(self.dut)
        simulator.add_clock(1e-6)
        simulator.add_testbench(self._bench)
        simulator.run()

    async def _bench(self, ctx):
        dut, busy = self.dut, 0
        ctx.set(dut.to_machine.ready, 1)
        ctx.set(dut.from_machine.valid, self.full)
        for cycle in range(BYTE * len(self.line) + 1500):
            on_line = cycle % BYTE == 0
            ctx.set(dut.valid, on_line and bool(self.line))
            ctx.set(dut.line.ready, on_line)
            if on_line and self.line:
                ctx.set(dut.byte, self.line.pop(0))
            if on_line and ctx.get(dut.line.valid):
                self.came.append(ctx.get(dut.line.payload))
            if ctx.get(dut.to_machine.valid):
                self.beats.append((ctx.get(dut.to_machine.p.data), ctx.get(dut.to_machine.p.last)))
            busy = (busy + 1) % 3 if ctx.get(dut.access.valid) else 0
            ctx.set(dut.finished, busy == 2)
            ctx.set(dut.access.ready, busy == 2)
            if busy == 2:
                self.accesses.append((ctx.get(dut.access.p.write), ctx.get(dut.access.p.address)))
            await ctx.tick()

    @property
    def answers(self) -> list[tuple]:
        frames = [unpack(frame) for frame in bytes(self.came).split(b"\0")[:-1]]
        return [ANSWER.unpack(frame.body) for frame in frames if frame.kind is FrameKind.ANSWER]


def golden(frames: list[bytes]) -> tuple[list, bool]:
    """The accesses to registers, and whether a frame was dropped."""
    machine, accesses = Machine(CONFIG), []
    machine.read_register = lambda address: accesses.append((0, address)) or 0
    machine.write_register = lambda address, value: accesses.append((1, address))
    machine.send = lambda data: None
    port = GoldenPort(machine)
    answers = b"".join(map(port.take, frames)).split(b"\0")[:-1]
    return accesses, any(ANSWER.unpack(unpack(each).body)[0] & Flag.MISSED for each in answers)


@pytest.mark.parametrize("name", FRAMES)
def test_frames(name):
    gates = Gates([OPEN, *FRAMES[name]])
    missed = any(answer[0] & Flag.MISSED for answer in gates.answers)
    assert (gates.accesses, missed) == golden([OPEN, *FRAMES[name]])


def test_a_message_that_ends_inside_a_beat():
    """It ends there, and the next one begins at a beat."""
    gates = Gates([OPEN, raw(0, FrameKind.DATA | LAST, b"123456"), raw(1, FrameKind.DATA | LAST, b"abcdefgh")])
    assert [last for _, last in gates.beats] == [0, 1, 0, 1]
    assert [data.to_bytes(4, "little") for data, _ in gates.beats[2:]] == [b"abcd", b"efgh"]


@pytest.mark.parametrize("full", [False, True])
def test_output_that_the_host_holds_up_is_not_quiet(full):
    """More than a window of it waits, and the host takes none."""
    last = Gates([OPEN, *[b"\0"] * 4000, POLL], full=full).answers[-1]
    assert bool(last[0] & Flag.QUIET) == (not full)
