"""The serial link of a golden machine."""

from concord.golden.machine import Machine
from concord.spec.host import serial
from concord.spec.host.serial import Frame, FrameKind


class SerialPort:
    """The machine's end of a serial link.

    Args:
        machine: Machine at this end; it runs after each frame.
    """

    def __init__(self, machine: Machine):
        self.machine = machine
        self._line = b""

    def take(self, data: bytes) -> bytes:
        """Take bytes from the line, which may be parts of frames; returns the bytes that the machine sends."""
        *frames, self._line = (self._line + data).split(b"\0")
        answers = b""
        for encoded in filter(None, frames):
            answers += self._answer(encoded)
            self.machine.run()
            for message in self.machine.receive():
                answers += serial.pack(Frame(kind=FrameKind.MESSAGE, message=message))
        return answers

    def _answer(self, encoded):
        try:
            frame = serial.unpack(encoded)
        except ValueError:
            frame = Frame(kind=FrameKind.MESSAGE)  # an empty message is malformed
        if frame.kind == FrameKind.MESSAGE:
            self.machine.send(frame.message)
            return b""
        if frame.kind == FrameKind.WRITE:
            self.machine.write_register(frame.address, frame.value)
            return serial.pack(frame)
        value = self.machine.read_register(frame.address)
        return serial.pack(Frame(kind=FrameKind.READ, address=frame.address, value=value))
