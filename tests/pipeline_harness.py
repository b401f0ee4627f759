"""Harness for units of fixed latency: one library call streams millions of records through a Verilated unit."""

import ctypes
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from amaranth.hdl import Shape
from amaranth.lib.wiring import Component, In
from concord.hw.verilog import verilog
from concord.sim.machines.build import PACKAGES, command, verilate
from concord.sim.machines.cache import cached, keep_only

HARNESS = """\
#include "Vtop.h"
#include "verilated.h"
#include <cstring>

// Record i is driven before edge i; what the unit shows at that time belongs to record i - latency.
extern "C" void stream(const unsigned char* const* in, unsigned char* const* out, long records, long latency) {
    static VerilatedContext context;
    static Vtop top{&context};
    for (long i = 0; i < records + latency; ++i) {
        if (i < records) {
@IN@
        }
        top.clk = 0;
        top.eval();
        if (i >= latency) {
            const long o = i - latency;
@OUT@
        }
        top.clk = 1;
        top.eval();
    }
}
"""


@dataclass(frozen=True, slots=True)
class Port:
    """Verilator's storage of a port: the smallest C++ integer that holds it, or 32-bit words beyond 64 bits."""

    name: str
    width: int

    @property
    def dtype(self) -> np.dtype:
        return next((np.dtype(f"u{n}") for n in (1, 2, 4, 8) if self.width <= 8 * n), np.dtype("u4"))

    @property
    def limbs(self) -> int:
        return -(-self.width // (8 * self.dtype.itemsize))

    @property
    def bytes(self) -> int:
        return self.limbs * self.dtype.itemsize

    def pack(self, records) -> np.ndarray:
        """Convert records to Verilator's storage, with the bits beyond the port's width cleared."""
        records = np.asarray(records)
        if records.ndim == 1 and self.limbs == 1:
            packed = records.astype(self.dtype)[:, None]
        else:
            row = np.ascontiguousarray(records).reshape(len(records), -1).view(np.uint8)
            packed = np.zeros((len(records), self.bytes), np.uint8)
            packed[:, : row.shape[1]] = row
            packed = packed.view(self.dtype)
        packed[:, -1] &= self.dtype.type((1 << self.width - 8 * self.dtype.itemsize * (self.limbs - 1)) - 1)
        return packed


class PipelineHarness:
    """A Verilated component without handshakes, which takes a record of inputs and gives one of outputs in each cycle.

    It is built once per distinct Verilog. Ports have the names that Amaranth gives when it flattens them (`i__value`).

    Args:
        dut:  Component with a property `latency`, in cycles, whose outputs do not depend on reset.
        name: Name of its Verilog module.
        text: Verilog to run instead of the component's own.
    """

    def __init__(self, dut: Component, name: str, text: str | None = None):
        self.dut, self.name, self._text = dut, name, text
        self.inputs, self.outputs = [], []
        for path, member, _ in dut.signature.flatten(dut):
            port = Port("__".join(map(str, path)), Shape.cast(member.shape).width)
            (self.inputs if member.flow == In else self.outputs).append(port)

    def __call__(self, **records) -> dict[str, np.ndarray]:
        """Stream one record a cycle.

        Args:
            records: For each input port an array. Integers [records] are cut to the port's width; the bytes of rows
                     [records, elements] fill the port from its low bits.

        Returns:
            For each output port unsigned integers [records], or rows of uint32 where it is wider than 64 bits.

        Raises:
            TypeError:  an input port is missing or unknown.
            ValueError: ports differ in their number of records.
        """
        names = [port.name for port in self.inputs]
        if sorted(names) != sorted(records):
            raise TypeError(f"{self.name} has the inputs {', '.join(names)}, not {', '.join(records)}")
        counts = {len(values) for values in records.values()}
        if len(counts) != 1:
            raise ValueError(f"{self.name} takes equally many records at all inputs, not {sorted(counts)}")
        count = counts.pop()
        driven = [port.pack(records[port.name]) for port in self.inputs]
        taken = [np.zeros((count, port.limbs), port.dtype) for port in self.outputs]
        self._stream(_pointers(driven), _pointers(taken), count, self.dut.latency)
        return {port.name: words if port.limbs > 1 else words[:, 0]
                for port, words in zip(self.outputs, taken, strict=True)}

    @cached_property
    def _stream(self):
        text = verilog(self.dut, self.name) if self._text is None else self._text
        harness = HARNESS.replace("@IN@", "".join(
            f"            std::memcpy(&top.{port.name}, in[{n}] + i * {port.bytes}, {port.bytes});\n"
            for n, port in enumerate(self.inputs))).replace("@OUT@", "".join(
            f"            std::memcpy(out[{n}] + o * {port.bytes}, &top.{port.name}, {port.bytes});\n"
            for n, port in enumerate(self.outputs)))

        function = shared_library(text, self.name, harness).stream
        function.restype = None
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
        return function


def shared_library(text: str, name: str, harness: str) -> ctypes.CDLL:
    """Verilog `text` with top module `name`, Verilated and linked to C++ `harness`."""
    def make(where):
        (where / f"{name}.v").write_text(text)
        (where / "harness.cpp").write_text(harness)
        # Several of these libraries are loaded into one process, so they must not share symbols.
        flags = "-fPIC -fno-gnu-unique"
        verilate(where, ["--top-module", name, f"{name}.v"], ["-CFLAGS", flags], target="libVtop.a", optimise="-O2")
        include = PACKAGES / "verilator" / "include"
        command(["g++", "-O2", *flags.split(), "-std=c++17", "-shared", "-I.", f"-I{include}", f"-I{include}/vltstd",
                 "harness.cpp", "libVtop.a", *where.glob("verilated*.o"), "-lpthread", "-o", "lanes.so"], where)
        keep_only(where, {"lanes.so", f"{name}.v"})

    return ctypes.CDLL(str(cached(f"lanes-{name}", text + harness, make) / "lanes.so"))


def _pointers(arrays):
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
