"""The serial link: byte stuffing, frames, and a machine at the end of the link."""

import numpy as np
import pytest
from concord.golden.host.messages import input_message, program_message, words_of
from concord.golden.machine import Machine, SerialPort
from concord.spec.host import serial
from concord.spec.host.messages import unpack
from concord.spec.host.registers import Control, Register, Status
from concord.spec.host.serial import Frame, FrameKind, stuff, unstuff
from concord.spec.isa.assembler import assemble
from concord.spec.isa.instructions import Error
from concord.spec.machine.config import preset
from hypothesis import given
from hypothesis import strategies as st

CONFIG = preset("tiny")
COPY = "s_wr Rows, 4\nv_rd NetQ\nv_wr NetQ\nend_chain\nend\n"


@given(st.lists(st.one_of(st.just(b"\0"), st.integers(0, 520).map(lambda n: bytes(k % 255 + 1 for k in range(n))))))
def test_stuffing(parts):
    data = b"".join(parts)
    assert 0 not in stuff(data)
    assert unstuff(stuff(data)) == data


def test_stuffing_of_the_paper():
    assert stuff(bytes.fromhex("45 00 00 2c 4c 79 00 00 40 06 4f 37")) \
        == bytes.fromhex("02 45 01 04 2c 4c 79 01 05 40 06 4f 37")


@pytest.mark.parametrize("encoded", [b"\x03\x01", b"\x00", b"\x03\x01\x00", b"\x02\x01\x05"])
def test_damaged_stuffing(encoded):
    with pytest.raises(ValueError, match="damaged"):
        unstuff(encoded)


@pytest.mark.parametrize("frame", [
    Frame(kind=FrameKind.MESSAGE, message=bytes(range(256)) * 3), Frame(kind=FrameKind.READ, address=0x1FC),
    Frame(kind=FrameKind.READ, address=4, value=0xFFFFFFFF), Frame(kind=FrameKind.WRITE, address=0, value=0)])
def test_frames(frame):
    data = serial.pack(frame)
    assert data.index(0) == len(data) - 1
    assert serial.unpack(data[:-1]) == frame


def test_every_damaged_byte_of_an_access_is_noticed():
    data = serial.pack(Frame(kind=FrameKind.WRITE, address=0x104, value=7))[:-1]
    for k in range(len(data)):
        for flip in (1, 0x80):
            with pytest.raises(ValueError, match="frame"):
                serial.unpack(data[:k] + bytes([data[k] ^ flip]) + data[k + 1:])


def frames(data):
    return [serial.unpack(part) for part in data.split(b"\0") if part]


def test_machine():
    """A program, its input in two pieces, its output and a register travel over the link."""
    port, words = SerialPort(Machine(CONFIG)), np.arange(4, dtype=np.uint16).reshape(2, 2)
    assert port.take(serial.pack(Frame(
        kind=FrameKind.MESSAGE, message=program_message(CONFIG, assemble(COPY))))) == b""
    start = Frame(kind=FrameKind.WRITE, address=Register.CONTROL, value=Control.START)
    assert frames(port.take(b"\0\0" + serial.pack(start))) == [start]
    data = serial.pack(Frame(kind=FrameKind.MESSAGE, message=input_message(CONFIG, words)))
    assert port.take(data[:9]) == b""
    (answer,) = frames(port.take(data[9:]))
    assert (words_of(CONFIG, unpack(CONFIG, answer.message, to_machine=False)) == words).all()
    ask = Frame(kind=FrameKind.READ, address=Register.STATUS)
    assert frames(port.take(serial.pack(ask)))[0].value == Status.DONE


@pytest.mark.parametrize(
    "line", [b"\x05\x01\0", b"\x02\x07\0", serial.pack(Frame(kind=FrameKind.MESSAGE, message=b"x"))])
def test_garbage_is_a_malformed_message(line):
    port = SerialPort(Machine(CONFIG))
    assert port.take(line) == b""
    assert port.machine.read_register(Register.ERROR) == Error.MESSAGE
