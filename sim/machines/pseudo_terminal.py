"""A line behind a pseudo-terminal, which other programs open as they open a serial port."""

import os
import pty
import select
import threading
import tty
from typing import Self

from concord.sim.machines.serial_link import ByteLine

SLICE = 2e-4  #: Seconds of the line's time between two looks at the terminal.


class PseudoTerminal:
    """Carries bytes between a pseudo-terminal and a line, in a thread of its own.

    Args:
        line: The line, such as `sim.machines.line.WiredBoard`.

    Attributes:
        name:   Name of the terminal.
        pulled: Whether the cable is pulled: bytes are lost in both directions.
    """

    def __init__(self, line: ByteLine):
        self._line, self.pulled = line, False
        self._ours, theirs = pty.openpty()
        tty.setraw(theirs)
        self.name, self._theirs = os.ttyname(theirs), theirs  # open, so that a program may come and go
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def _carry(self) -> None:
        while not self._ends.is_set():
            if select.select([self._ours], [], [], 0)[0]:
                data = os.read(self._ours, 4096)
                if not self.pulled:
                    self._line.write(data)
            came = self._line.read(SLICE)
            if came and not self.pulled:
                os.write(self._ours, came)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self._ends.set()
        self._thread.join()
        os.close(self._ours)
        os.close(self._theirs)
        self._line.close()
