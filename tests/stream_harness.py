"""Harness for units with streams: one library call moves millions of transfers through a Verilated unit."""

import ctypes
from functools import cached_property

import numpy as np
from amaranth.hdl import Shape
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In
from concord.hw.verilog import verilog
from concord.sim.drivers.bench import pack_rows, unpack_rows
from concord.tests.pipeline_harness import Port, shared_library

HARNESS = """\
#include "Vtop.h"
#include "verilated.h"
#include <cstring>

// Each input stream brings its transfers, each output stream takes as many as are wanted; a wire pauses for about
// `pause` of 256 cycles. The cycles that passed, or -1 if nothing has moved for 10,000 of them.
extern "C" long move(const unsigned char* const* in, const long* brought, unsigned char* const* out, const long* wanted,
                     long pause) {
    static VerilatedContext context;
    static Vtop top{&context};
    long sent[@INS@] = {}, taken[@OUTS@] = {}, quiet = 0;
    bool held[@INS@] = {};
    unsigned long noise = 88172645463325252ul;
    auto goes = [&] {
        noise ^= noise << 13; noise ^= noise >> 7; noise ^= noise << 17;
        return long(noise >> 32 & 255) >= pause;
    };
    top.rst = 1;
    for (int edge = 0; edge < 8; ++edge) { top.clk = edge & 1; top.eval(); }
    top.rst = 0;
    for (long cycle = 0; quiet < 10000; ++cycle) {
        bool done = true, moved = false;
@DRIVE@
        if (done) return cycle;
        top.clk = 0;
        top.eval();
@SAMPLE@
        quiet = moved ? 0 : quiet + 1;
        top.clk = 1;
        top.eval();
    }
    return -1;
}
"""

# Verilator writes a second underscore as __05F.
DRIVE_INPUT = """\
        done = done && sent[{n}] == brought[{n}];
        held[{n}] = sent[{n}] < brought[{n}] && (held[{n}] || goes());
        top.{name}___05Fvalid = held[{n}];
        if (held[{n}]) std::memcpy(&top.{name}___05Fpayload, in[{n}] + sent[{n}] * {bytes}, {bytes});
"""
DRIVE_OUTPUT = """\
        done = done && taken[{n}] == wanted[{n}];
        top.{name}___05Fready = taken[{n}] < wanted[{n}] && goes();
"""
SAMPLE_INPUT = """\
        if (held[{n}] && top.{name}___05Fready) {{ ++sent[{n}]; held[{n}] = false; moved = true; }}
"""
SAMPLE_OUTPUT = """\
        if (top.{name}___05Fvalid && top.{name}___05Fready) {{
            std::memcpy(out[{n}] + taken[{n}] * {bytes}, &top.{name}___05Fpayload, {bytes});
            ++taken[{n}];
            moved = true;
        }}
"""


class StreamHarness:
    """A Verilated component whose ports are streams; input ports that are no streams keep their initial values.

    It is built once per distinct Verilog.

    Args:
        dut:  Component with streams.
        name: Name of its Verilog module.

    Attributes:
        cycles: Number of clock cycles of the last call.
    """

    def __init__(self, dut: Component, name: str):
        self.dut, self.name, self.cycles = dut, name, 0
        self.shapes, self.inputs, self.outputs = {}, [], []
        for key, member in dut.signature.members.items():
            if member.is_signature and isinstance(member.signature, stream.Signature):
                self.shapes[key] = member.signature.members["payload"].shape
                port = Port(key, Shape.cast(self.shapes[key]).width)
                (self.inputs if member.flow == In else self.outputs).append(port)

    def __call__(self, wanted: dict[str, int], *, pause: float = 0.0, **brought) -> dict:
        """Move transfers through all streams.

        Args:
            wanted:  Number of transfers to take from each output stream, by the name of the stream.
            pause:   Share of cycles in which a stream pauses.
            brought: Values for each input stream, in the form that `sim.drivers.bench.pack` takes.

        Returns:
            Values of each output stream by name, in the form that `sim.drivers.bench.unpack` returns.

        Raises:
            RuntimeError: the component stalls before all transfers have moved.
        """
        rows = [pack_rows(self.shapes[port.name], brought[port.name]) for port in self.inputs]
        driven = [port.pack(row) for port, row in zip(self.inputs, rows, strict=True)]
        taken = [np.zeros((wanted[port.name], port.limbs), port.dtype) for port in self.outputs]
        sides = (function(arrays) for arrays in (driven, taken) for function in (_pointers, _lengths))
        self.cycles = self._move(*sides, int(256 * pause))
        if self.cycles < 0:
            raise RuntimeError(f"{self.name} stops before it has given {wanted}")
        return {port.name: unpack_rows(self.shapes[port.name], words.view(np.uint8).reshape(len(words), -1))
                for port, words in zip(self.outputs, taken, strict=True)}

    @cached_property
    def _move(self):
        sides = ((self.inputs, DRIVE_INPUT, SAMPLE_INPUT), (self.outputs, DRIVE_OUTPUT, SAMPLE_OUTPUT))
        drive, sample = ("".join(pieces[k].format(n=n, name=port.name, bytes=port.bytes)
                                 for ports, *pieces in sides for n, port in enumerate(ports)) for k in (0, 1))
        harness = (HARNESS.replace("@INS@", str(len(self.inputs))).replace("@OUTS@", str(len(self.outputs)))
                   .replace("@DRIVE@", drive).replace("@SAMPLE@", sample))
        function = shared_library(verilog(self.dut, self.name), self.name, harness).move
        function.restype = ctypes.c_long
        function.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long]
        return function


def _pointers(arrays):
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def _lengths(arrays):
    return (ctypes.c_long * len(arrays))(*map(len, arrays))
