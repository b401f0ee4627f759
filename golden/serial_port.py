"""The machine's end of a serial link, as `spec.host.serial` describes it."""

from concord.golden.machine import Machine
from concord.spec.host.serial import (
    ANSWER,
    REQUEST,
    WINDOW,
    Flag,
    Frame,
    FrameKind,
    pack,
    parts,
    unpack,
)


class GoldenPort:
    """A golden machine at the end of a line.

    Args:
        machine: The machine; it runs after each frame, and takes every message at once.
    """

    def __init__(self, machine: Machine):
        self.machine = machine
        self._line, self._number, self._value, self._opened = b"", 0, 0, False
        self._open()

    def _open(self):
        self._taken, self._message = 0, b""  # DATA frames from the host, and what has come of a message
        self._made: list[Frame] = []  # all DATA frames for the host
        self._sent = self._known = 0  # number of them that were sent, and that the host has taken
        self._missed = False

    def take(self, data: bytes) -> bytes:
        """Take bytes from the line, which may be parts of frames; returns the bytes that the machine sends."""
        *frames, self._line = (self._line + data).split(b"\0")
        answers = b""
        for encoded in filter(None, frames):
            try:
                frame = unpack(encoded)
            except ValueError:
                self._missed = True
            else:
                self._execute(frame)
                self.machine.run()
                for message in self.machine.receive():
                    self._made += parts(message, len(self._made))
            answers += self._answer()
        return answers

    def _execute(self, frame: Frame):
        if frame.kind is FrameKind.DATA:
            ahead = (frame.number - self._taken) % 256
            self._missed |= 0 < ahead < 128 or not (ahead or frame.body)
            if ahead == 0 and frame.body:
                self._taken += 1
                self._message += frame.body
                if frame.last:
                    self.machine.send(self._message)
                    self._message = b""
            return
        if frame.kind is FrameKind.ANSWER or len(frame.body) != REQUEST.size:
            self._missed = True
            return
        known, address, value = REQUEST.unpack(frame.body)
        if frame.kind is FrameKind.OPEN:
            self._open()
            self._opened = True
        elif (known - self._known) % 256 <= len(self._made) - self._known:
            self._known += (known - self._known) % 256
            self._sent = self._known if frame.last else max(self._sent, self._known)
        if frame.number != self._number and frame.kind is FrameKind.READ:
            self._value = self.machine.read_register(address)
        if frame.number != self._number and frame.kind is FrameKind.WRITE:
            self.machine.write_register(address, value)
        self._number = frame.number

    def _answer(self) -> bytes:
        flags = Flag.QUIET | Flag.MISSED * self._missed | Flag.CLOSED * (not self._opened)
        body = ANSWER.pack(flags, self._taken % 256, self._taken % 256, len(self._made) % 256, self._value)
        self._missed = False
        ready = self._made[self._sent:self._known + WINDOW]
        self._sent += len(ready)
        return pack(Frame(number=self._number, kind=FrameKind.ANSWER, body=body)) + b"".join(map(pack, ready))
