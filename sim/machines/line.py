"""A Verilated machine at the end of a serial line, bit by bit."""

import ctypes
import shlex
from collections.abc import Callable
from pathlib import Path

from concord.hw.serial_nnp import SerialNNP
from concord.hw.verilog import verilog
from concord.sim.machines.build import FLAGS, OPTIMISE, SHARED, lean, verilate
from concord.sim.machines.cache import cached, keep_only
from concord.sim.machines.library import cached_verilog, reset_in_register
from concord.spec.machine.config import Config

SHIM = Path(__file__).with_name("line_shim.cpp")
_POINTER, _LONG = ctypes.c_void_p, ctypes.c_uint64
_FUNCTIONS = {  # Type of the result, and of the arguments.
    "create": (_POINTER, (ctypes.c_double,)), "destroy": (None, (_POINTER,)),
    "send": (None, (_POINTER, ctypes.c_char_p, _LONG)), "run": (_LONG, (_POINTER, _LONG)),
    "receive": (None, (_POINTER, ctypes.c_char_p, _LONG)), "cycles": (_LONG, (_POINTER,)),
    "lights": (ctypes.c_uint, (_POINTER,)),
}


def build_line(config: Config, clock: float, baud: int) -> Path:
    """Build the shared library of `SerialNNP(config, clock, baud)`."""
    text = reset_in_register(cached_verilog(
        f"serial {clock} {baud} {config}", lambda: verilog(SerialNNP(config, clock, baud), "nnp")))
    flags = ["--exe", "-CFLAGS", SHARED]
    arguments = ["--top-module", "nnp", "-o", "line.so", "-LDFLAGS", "-shared"]

    def make(where: Path) -> None:
        (where / "nnp.v").write_text(lean(text))
        verilate(where, [*arguments, SHIM, "nnp.v"], flags, target="line.so")
        keep_only(where, {"line.so", "nnp.v"})

    key = text + SHIM.read_text() + shlex.join([*FLAGS, *flags, *arguments, OPTIMISE])
    return cached("line", key, make) / "line.so"


class WiredBoard:
    """One Verilated machine behind a UART: a line that `sim.machines.serial_link` drives, whose time is simulated.

    Args:
        config: The machine.
        clock:  Its clock in MHz.
        baud:   Bits per second for which the machine is made.
        drift:  Bits per second of the host, relative to those.
        faults: What becomes of bytes on their way from the host, and from the machine.
    """

    def __init__(self, config: Config, *, clock: float, baud: int = 3_000_000, drift: float = 1.0,
                 faults: tuple[Callable[[bytes], bytes], ...] = (bytes, bytes)):
        self._library = ctypes.CDLL(str(build_line(config, clock, baud)))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(self._library, f"line_{name}")
            function.restype, function.argtypes = result, arguments
        self._hertz, self.faults = clock * 1e6, faults
        self._board = self._library.line_create(self._hertz / (baud * drift))

    def write(self, data: bytes) -> None:
        """Put bytes on the line."""
        data = self.faults[0](data)
        self._library.line_send(self._board, data, len(data))

    def read(self, seconds: float) -> bytes:
        """The bytes that have come; waits for the end of a frame, or for `seconds` of simulated time."""
        count = self._library.line_run(self._board, max(1, int(seconds * self._hertz)))
        data = ctypes.create_string_buffer(count)
        self._library.line_receive(self._board, data, count)
        return self.faults[1](data.raw)

    def now(self) -> float:
        """Simulated seconds since power-up."""
        return self._library.line_cycles(self._board) / self._hertz

    @property
    def lights(self) -> int:
        """The lights of the board."""
        return self._library.line_lights(self._board)

    def close(self) -> None:
        """End the simulation."""
        if self._board is not None:
            self._library.line_destroy(self._board)
            self._board = None
