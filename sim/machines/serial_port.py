"""A serial port of this computer, as a line to a machine."""

import time
from contextlib import suppress

import serial

BAUD = 3_000_000  #: Bits per second of the line, which the FTDI chips of boards reach.
AGAIN = 0.2  #: Seconds between attempts to open a port that is gone.


class SerialPort:
    """A line to a machine over a serial port; one that goes, as when a cable is pulled, is opened again.

    Args:
        name: Name of the port, such as /dev/ttyUSB0, or a URL of pyserial.
        baud: Bits per second.

    Raises:
        ValueError: there is no such port, or this user may not open it.
    """

    def __init__(self, name: str, baud: int = BAUD):
        self._name, self._baud, self._tried = name, baud, 0.0
        try:
            self._port = self._opened()
        except (serial.SerialException, ValueError, OSError) as error:
            raise ValueError(f"the serial port {name} cannot be opened: {error}; plug the board in, look for its name "
                             "with python -m serial.tools.list_ports, and see that you may use it (group dialout)"
                             ) from None

    def _opened(self) -> serial.SerialBase:
        port = serial.serial_for_url(self._name, baudrate=self._baud, timeout=0)
        with suppress(AttributeError, ValueError, OSError, NotImplementedError):
            port.set_low_latency_mode(True)  # else the chip holds short answers back for 16 ms
        return port

    def write(self, data: bytes) -> None:
        """Send bytes; they are lost while the port is gone."""
        if self._port is not None:
            try:
                self._port.write(data)
            except (serial.SerialException, OSError):
                self._lose()

    def read(self, seconds: float) -> bytes:
        """The bytes that have come; waits for at most `seconds` where there are none."""
        if self._port is None:
            self._reopen()
        if self._port is not None:
            try:
                self._port.timeout = seconds
                return self._port.read(1) + self._port.read(self._port.in_waiting)
            except (serial.SerialException, OSError):
                self._lose()
        time.sleep(seconds)
        return b""

    def _lose(self) -> None:
        with suppress(serial.SerialException, OSError):
            self._port.close()
        self._port = None

    def _reopen(self) -> None:
        if self.now() - self._tried > AGAIN:
            self._tried = self.now()
            with suppress(serial.SerialException, ValueError, OSError):
                self._port = self._opened()

    def now(self) -> float:
        """Seconds, of a clock that only goes forward."""
        return time.monotonic()

    def close(self) -> None:
        """Close the port."""
        if self._port is not None:
            self._lose()
