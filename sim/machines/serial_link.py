"""The host's end of a serial link: messages and registers over a line that may lose, double or damage bytes."""

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from concord.sim.machines.host import MachineTimeout
from concord.spec.host.registers import Control, Register, Status
from concord.spec.host.serial import ANSWER, REQUEST, WINDOW, Flag, Frame, FrameKind, pack, parts, unpack
from concord.spec.machine.config import Config

PATIENCE = 10.0  #: Seconds without a frame from the machine after which the link is given up.
SLICE = 0.001  #: Seconds for which the line is read at once.
FIRST, LEAST, MOST = 0.1, 0.004, 1.0  #: Seconds after which a request is sent again: at first, at least and at most.


class ByteLine(Protocol):
    """A line of bytes in both directions, with a clock."""

    def read(self, seconds: float) -> bytes:
        """The bytes that have come; waits for at most `seconds` where there are none."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def now(self) -> float:
        """Seconds."""

    def close(self) -> None:
        """Release the line."""


@dataclass(slots=True)
class PendingRequest:
    """A request that the machine has not answered.

    Attributes:
        number, kind, address, value: What it says.
        began: Time at which it was first sent. sent: Time at which it was last sent.
        first: Whether it was sent once only.
        after: DATA frames that were sent before it.
    """

    number: int
    kind: FrameKind
    address: int
    value: int
    began: float
    sent: float
    after: int
    first: bool = True


class HostLink:
    """A link to a machine at the end of a serial line, as `sim.machines.host.HardwareMachine` drives it.

    Args:
        config:   Configuration of the machine.
        line:     The line.
        name:     Name of the line for sentences.
        patience: Seconds without a frame from the machine after which it is given up.

    Attributes:
        damaged: Number of frames from the machine that were damaged. repeated: Number of frames that were sent again.

    Raises:
        MachineTimeout: nobody answers at the other end.
        ValueError: the machine there is another one.
    """

    def __init__(self, config: Config, line: ByteLine, *, name: str = "the line", patience: float = PATIENCE):
        self.config, self._line, self._name, self._patience = config, line, name, patience
        self.damaged = self.repeated = 0
        self._rest, self._number, self._delay = b"", 0, FIRST
        self._heard = self._began = line.now()
        self._open()
        found = self.read(Register.DIGEST)
        if found != config.digest:
            self.close()
            raise ValueError(f"the machine at {name} is {found:08x}, and the firmware is for {config.digest:08x}: "
                             "write the bitstream of that machine, or compile for this one")
        # What an earlier host has left: a program, and half a message in each direction.
        self.write(Register.CONTROL, Control.RESET)
        self.settle(0, 0, 0)
        self._open()

    def _open(self) -> None:
        """Begin both directions anew."""
        self._frames: deque[Frame] = deque()  # DATA frames that the machine has not taken, from number `_taken` on
        self._taken = self._passed = self._following = self._queued = 0
        self._expected = self._made = self._told = 0
        self._part, self._messages = [], []
        self._flags, self._value = Flag(0), 0
        self._gap, self._went_back = False, -1.0
        self._pending: PendingRequest | None = None
        self._execute(FrameKind.OPEN)

    def send(self, data: bytes) -> None:
        """Queue one message of whole beats."""
        if not data or len(data) % self.config.message_bytes:
            raise ValueError(f"{len(data)} bytes are not whole beats of {self.config.message_bytes} bytes")
        made = parts(data, self._queued)
        self._queued += len(made)
        self._frames += made
        while self._queued - self._passed > 4 * WINDOW:  # the queue stays short where the machine takes what comes
            before = self._passed
            self._pump()
            if self._passed == before and self._flags & Flag.QUIET:
                break

    def receive(self) -> list[bytes]:
        """The complete messages that have come out since the last call."""
        messages, self._messages = self._messages, []
        return messages

    def read(self, address: int) -> int:
        """Read a register."""
        self._execute(FrameKind.READ, address)
        return self._value

    def write(self, address: int, value: int) -> None:
        """Write a register."""
        self._execute(FrameKind.WRITE, address, value)

    def step(self, cycles: int) -> None:
        """Let time pass; the machine has a clock of its own."""
        self._pump()

    def settle(self, quiet: int, blocked: int, most: int) -> bool:
        """Wait until everything has been sent and received, and nothing moves in the machine.

        The machine says when nothing has moved for 256 cycles, however many are asked for.

        Raises:
            MachineTimeout: it answers, but messages do not come through.
        """
        moved, progress = self._line.now(), (-1, -1, -1)
        while True:
            if progress != (self._expected, self._taken, self._passed):
                moved, progress = self._line.now(), (self._expected, self._taken, self._passed)
            elif self._line.now() - moved > self._patience:
                raise MachineTimeout(f"the machine at {self._name} answers, but no message has come through for "
                                     f"{self._patience:g} s: reset the board, and write its bitstream again")
            self._fill()
            before = self._following
            self._execute(FrameKind.POLL)
            if self._flags & Flag.QUIET and self._taken == self._queued and self._expected == self._made:
                return True
            if self._flags & Flag.QUIET and before - self._passed == WINDOW and self._expected == self._made:
                return True  # the machine takes no more
            came = -1
            while came != self._expected:  # no request while messages come, which would take their time
                came = self._expected
                self._pump()

    def run(self, most: int) -> int:
        """Wait until no program runs, or one waits for input in vain, or `most` microseconds have passed.

        Returns:
            The register STATUS.
        """
        end = self._line.now() + most / 1e6
        while True:
            status = Status(self.read(Register.STATUS))
            done = self._flags & Flag.QUIET and self._expected == self._made
            starved = status & Status.WAIT_INPUT and not self.queued
            if (done and (starved or not status & Status.RUNNING)) or self._line.now() >= end:
                return status

    @property
    def queued(self) -> int:
        """Number of parts of messages that the machine has not taken."""
        return self._queued - self._passed

    @property
    def cycles(self) -> int:
        """Microseconds since the link was opened: the host does not see the machine's clock."""
        return int((self._line.now() - self._began) * 1e6)

    def close(self) -> None:
        """Release the line."""
        self._line.close()

    def _execute(self, kind: FrameKind, address: int = 0, value: int = 0) -> None:
        """Send a request, and wait for its answer."""
        request = self._ask(kind, address, value)
        while self._pending is request:
            self._pump()

    def _ask(self, kind: FrameKind, address: int = 0, value: int = 0, *, again: bool = False) -> PendingRequest:
        if kind is not FrameKind.OPEN:
            self._fill()  # the answer then speaks of all messages
        self._number = self._number % 255 + 1
        now = self._line.now()
        self._pending = PendingRequest(self._number, kind, address, value, now, now, self._following)
        self._put_request(again)
        return self._pending

    def _put_request(self, again: bool) -> None:
        request, self._told = self._pending, self._expected
        body = REQUEST.pack(self._expected % 256, request.address, request.value)
        self._line.write(pack(Frame(number=request.number, kind=request.kind, last=again, body=body)))

    def _pump(self) -> None:
        """Read what has come, and send what there is to send."""
        *frames, self._rest = (self._rest + self._line.read(SLICE)).split(b"\0")
        for encoded in filter(None, frames):
            try:
                self._take(unpack(encoded))
            except ValueError:
                self.damaged += 1
        self._fill()
        self._tend()

    def _fill(self) -> None:
        """Send the parts of messages for which the machine has room."""
        while self._following < min(self._queued, self._passed + WINDOW):
            self._line.write(pack(self._frames[self._following - self._taken]))
            self._following += 1

    def _take(self, frame: Frame) -> None:
        """Take a frame of the machine."""
        opening = self._pending is not None and self._pending.kind is FrameKind.OPEN
        if frame.kind is FrameKind.ANSWER and len(frame.body) == ANSWER.size:
            if not opening or frame.number == self._pending.number:
                self._heard = self._line.now()
                self._answer(frame)
        elif frame.kind is FrameKind.DATA and not opening:
            self._heard = self._line.now()
            ahead = (frame.number - self._expected) % 256
            if ahead == 0:
                self._expected += 1
                self._made = max(self._made, self._expected)
                self._part.append(frame.body)
                if frame.last:
                    self._messages.append(b"".join(self._part))
                    self._part.clear()
            self._gap |= 0 < ahead < WINDOW

    def _answer(self, frame: Frame) -> None:
        flags, taken, passed, made, value = ANSWER.unpack(frame.body)
        self._flags = Flag(flags)
        if (made - self._expected) % 256 <= WINDOW:
            self._made = max(self._made, self._expected + (made - self._expected) % 256)
        if self._flags & Flag.CLOSED:
            raise MachineTimeout(f"the machine at {self._name} was reset or lost power: what was loaded is lost, and "
                                 "the command must be run again")
        new = (taken - self._taken) % 256
        for _ in range(min(new, len(self._frames))):
            self._frames.popleft()
        self._taken += new
        self._following = max(self._following, self._taken)
        self._passed = self._taken - (taken - passed) % 256
        pending, now = self._pending, self._line.now()
        answered = pending is not None and frame.number == pending.number
        lost = self._flags & Flag.MISSED and now - self._went_back > self._delay / 2
        if lost or (answered and self._taken < pending.after and self._went_back < pending.sent):
            self.repeated += self._following - self._taken
            self._following, self._went_back = self._taken, now
        if answered:
            self._value, self._pending = value, None
            took = 2 * (now - pending.sent) if pending.first else 0.25 * self._delay
            self._delay = min(MOST, max(LEAST, 0.5 * self._delay + took))

    def _tend(self) -> None:
        """Ask for what is missing, and tell the machine what has come."""
        now, pending = self._line.now(), self._pending
        late = now - max(self._heard, pending.sent if pending else 0) > self._delay
        missing = self._gap or (late and self._expected < self._made)
        if pending is not None:
            if now - max(self._heard, pending.began) > self._patience:
                raise MachineTimeout(f"the machine at {self._name} has not answered for {self._patience:g} s: check "
                                     "its power, cable and bitstream, and that no other program uses the line")
            if now - pending.sent > self._delay or self._expected - self._told >= WINDOW // 2:
                self.repeated += 1
                pending.first, pending.sent = False, now
                self._delay = min(MOST, 1.5 * self._delay)
                self._put_request(missing)
                self._gap = False
        elif missing or self._expected - self._told >= WINDOW // 2 or (late and self._following > self._passed):
            self._ask(FrameKind.POLL, again=missing)
            self._gap = False
