"""The C driver of a hand-over in this process: compiled as a library, on a machine that Python drives, for tests."""

import ctypes
import subprocess
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_int, c_size_t, c_uint8, c_uint16, c_uint32, c_void_p
from pathlib import Path

import numpy as np
from concord.firmware.firmware import Firmware
from concord.firmware.layout import Layout
from concord.handover.package import handover
from concord.lib.files import write_all
from concord.spec.host.registers import Register

#: Options with which the C files have no warning.
STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Wstrict-prototypes", "-Werror")
PORTABLE = ("nnp.c", "nnp_infer.c", "network.c", "firmware.c", "examples.c")
RESULTS = ("OK", "STOPPED", "REFUSED", "TIMEOUT", "OTHER_MACHINE", "OTHER_FIRMWARE", "DAMAGED", "TRANSFER", "SPACE",
           "ARGUMENT", "UNEXPECTED", "LIST")
_READ = CFUNCTYPE(c_uint32, c_void_p, c_uint32)
_WRITE = CFUNCTYPE(None, c_void_p, c_uint32, c_uint32)
_SEND = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)
_RECEIVE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, POINTER(c_size_t))


class Port(ctypes.Structure):
    """`struct nnp_port`."""

    _fields_ = [("context", c_void_p), ("read", _READ), ("write", _WRITE), ("send", _SEND), ("receive", _RECEIVE)]


class CLayout(ctypes.Structure):
    """`struct nnp_layout`."""

    _fields_ = [*((name, c_uint32) for name in ("channels", "rows", "columns", "align")),
                *((name, c_uint32 * 2) for name in ("window", "stride", "dilation")), ("padding", c_uint32 * 4),
                ("lanes", c_uint32), ("runs", c_uint32), ("places", POINTER(c_uint32 * 3))]

    @classmethod
    def of(cls, layout: Layout) -> "CLayout":
        """The structure of a layout."""
        runs = len(layout.places)
        return cls(**layout.record() | {"lanes": layout.lanes, "runs": runs, "places": (c_uint32 * 3 * runs)(
            *layout.places)})


class Network(ctypes.Structure):
    """`struct nnp_network`."""

    _fields_ = [("name", c_char_p), *((name, c_uint32) for name in (
        "inputs", "outputs", "input_words", "output_words")), ("loop", ctypes.c_int32), ("steps", c_uint32),
        ("directions", c_uint32), ("backward", POINTER(c_uint8)), ("input", POINTER(CLayout)),
        ("output", POINTER(CLayout))]


class Nnp(ctypes.Structure):
    """`struct nnp`; its last member is larger than any machine's."""

    _fields_ = [("port", Port), *((name, c_uint32) for name in (
        "polls", "status", "error", "error_address", "steps", "asked", "unsettled")), ("scratch", c_uint8 * 4096)]


def compile_c(folder: Path, output: str, *sources: str, options: tuple[str, ...] = ()) -> Path:
    """Compile C files of a folder without a warning.

    Raises:
        AssertionError: the compiler complains.
    """
    words = ["gcc", *STRICT, "-O1", *options, "-o", output, *sources, "-ldl"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return folder / output


class Driver:
    """The driver with one network, on a machine at a link such as `sim.machines.library.Library`.

    Args:
        folder:   Folder for the files.
        firmware: The network.
        samples:  Examples.
        link:     Sends and receives messages, reads and writes registers, lets cycles pass.
        polls:    Number of attempts of the driver.
    """

    def __init__(self, folder: Path, firmware: Firmware, samples, link, *, polls: int = 20000):
        self.firmware, self.link, self.sent, self.arrived = firmware, link, [], []
        self.overrides: dict[int, int] = {}  # values of registers instead of the machine's
        self.broken = False  # whether transfers fail
        self.patient = True  # whether a message has been taken when it is sent, as on a board
        write_all(folder, handover(firmware, samples))
        self.c = ctypes.CDLL(str(compile_c(folder, "driver.so", *PORTABLE, options=("-shared", "-fPIC"))))
        self.c.nnp_buffer_bytes.restype = c_size_t
        self.c.nnp_text.restype = self.c.nnp_error_text.restype = c_char_p
        self.c.nnp_counter.restype = c_uint32
        self.network = c_void_p.in_dll(self.c, "nnp_network")
        self.port = Port(None, _READ(self._read), _WRITE(self._write), _SEND(self._send), _RECEIVE(self._receive))
        self.polls, self.nnp = polls, Nnp()

    def call(self, name: str, *arguments) -> str:
        """Call a function of the driver on this machine; the name of its result."""
        return RESULTS[getattr(self.c, f"nnp_{name}")(byref(self.nnp), *arguments)]

    def open(self) -> str:
        """Open the machine."""
        return self.call("open", byref(self.port), self.polls)

    def load(self, messages: bytes | None = None) -> str:
        """Load messages, or the firmware of the hand-over."""
        if messages is None:
            size = c_size_t.in_dll(self.c, "nnp_firmware_bytes")
            return self.call("load", byref(c_uint8.in_dll(self.c, "nnp_firmware")), size)
        return self.call("load", messages, c_size_t(len(messages)))

    def send(self, message: bytes) -> str:
        """Send bytes as one message."""
        return self.call("send", message, c_size_t(len(message)))

    def infer(self, sample: np.ndarray, *, steps: int | None = None, capacity: int | None = None
              ) -> tuple[str, np.ndarray]:
        """Run one sample, and return the name of the result and uint16[outputs]."""
        if steps is None:
            steps = len(sample) if self.firmware.recurrent else 1
        sample = np.ascontiguousarray(sample)
        needed = self.c.nnp_buffer_bytes(byref(self.network), c_uint32(steps))
        buffer, result = (c_uint8 * needed)(), np.zeros(self.firmware.outputs, np.uint16)
        name = self.call("infer", byref(self.network), sample.ctypes.data_as(POINTER(c_uint16)), c_uint32(steps),
                         result.ctypes.data_as(POINTER(c_uint16)), buffer,
                         c_size_t(needed if capacity is None else capacity))
        return name, result

    def _read(self, _, address: int) -> int:
        return self.overrides.get(Register(address), self.link.read(address))

    def _write(self, _, address: int, value: int):
        self.link.write(address, value)

    def _send(self, _, message: int, size: int) -> int:
        self.sent.append(ctypes.string_at(message, size))
        if self.broken:
            return 1
        self.link.send(self.sent[-1])
        for _ in range(self.polls * self.patient):
            if not self.link.queued:
                return 0
            self.link.step(8)
        return int(self.patient)

    def _receive(self, _, buffer: int, capacity: int, size) -> int:
        self.link.step(16)
        self.arrived += self.link.receive()
        message = self.arrived.pop(0) if self.arrived else b""
        size[0] = len(message)
        if len(message) <= capacity:
            ctypes.memmove(buffer, message, len(message))
        return int(self.broken)
