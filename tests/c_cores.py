"""The C driver of the cores of an accelerator in this process, on an accelerator that Python drives, for tests."""

import ctypes
from ctypes import CFUNCTYPE, byref, c_char, c_size_t, c_uint8, c_uint16, c_uint32, c_void_p, string_at
from pathlib import Path

import numpy as np
from concord.firmware.firmware import Firmware
from concord.sim.machines.accelerators import AcceleratorMachine
from concord.tests.c_driver import PORTABLE, RESULTS, compile_c

SOURCES = ("nnp_cores.c", "nnp_commands.c", *PORTABLE)


class Port(ctypes.Structure):
    """`struct nnp_accelerator_port`."""

    _fields_ = [("context", c_void_p), ("read", CFUNCTYPE(c_uint32, c_void_p, c_uint32)),
                ("write", CFUNCTYPE(None, c_void_p, c_uint32, c_uint32)),
                ("write_memory", CFUNCTYPE(None, c_void_p, c_uint32, c_void_p, c_size_t)),
                ("read_memory", CFUNCTYPE(None, c_void_p, c_uint32, c_void_p, c_size_t))]


class Commander(ctypes.Structure):
    """`struct nnp_accelerator`."""

    _fields_ = [("port", Port), *((name, c_uint32) for name in (
        "polls", "ring", "commands", "status", "error", "error_index", "error_origin", "core_error", "error_address"))]


class Cores(ctypes.Structure):
    """`struct nnp_cores`."""

    _fields_ = [("accelerator", Commander), ("network", c_void_p), ("samples", c_uint32), ("steps", c_uint32 * 15)]


def port_of(machine: AcceleratorMachine) -> Port:
    """The functions of an accelerator, for which time passes when a register is read."""
    def read(_, address):
        machine.run()
        return machine.read_register(address)

    types = dict(Port._fields_)
    return Port(
        None, types["read"](read), types["write"](lambda _, *given: machine.write_register(*given)),
        types["write_memory"](lambda _, to, data, count: machine.write_memory(to, string_at(data, count))),
        types["read_memory"](lambda _, at, data, count: ctypes.memmove(data, machine.read_memory(at, count), count)))


class CoresDriver:
    """`nnp_cores_open` and `nnp_cores_infer` of the files in a folder, on an accelerator.

    Args:
        folder:   Files of a hand-over with several cores.
        firmware: The network.
        machine:  The accelerator.
    """

    def __init__(self, folder: Path, firmware: Firmware, machine: AcceleratorMachine):
        self.library = ctypes.CDLL(str(compile_c(folder, "cores.so", *SOURCES, options=("-shared", "-fPIC"))))
        self.library.nnp_cores_buffer_bytes.restype = c_size_t
        self.firmware, self.cores, self.port = firmware, Cores(), port_of(machine)
        self.network = (c_char * 1).in_dll(self.library, "nnp_network")

    def open(self, messages: bytes) -> str:
        """Bring messages into all cores; the result's name."""
        return RESULTS[self.library.nnp_cores_open(
            byref(self.cores), byref(self.port), self.network, messages, c_size_t(len(messages)), c_uint32(100))]

    def infer(self, samples: list[np.ndarray], spare: int = 0) -> tuple[str, np.ndarray]:
        """Run samples with a buffer of `spare` bytes more than it needs: the result's name, and the outputs."""
        steps = [len(sample) if self.firmware.recurrent else 1 for sample in samples]
        results = np.zeros((len(samples), self.firmware.outputs), np.uint16)
        given = [np.ascontiguousarray(sample) for sample in samples]
        size = self.library.nnp_cores_buffer_bytes(self.network, c_uint32(max(steps))) + spare
        pointers = [(ctypes.POINTER(c_uint16) * len(samples))(*(
            one.ctypes.data_as(ctypes.POINTER(c_uint16)) for one in arrays)) for arrays in (given, list(results))]
        code = self.library.nnp_cores_infer(
            byref(self.cores), c_uint32(len(samples)), pointers[0], (c_uint32 * len(samples))(*steps), pointers[1],
            (c_uint8 * size)(), c_size_t(size))
        return RESULTS[code], results
