"""The Verilated accelerator as a shared library that runs lists of commands, with no Python code in each cycle."""

import ctypes
from pathlib import Path

import numpy as np
from amaranth import Module, Value
from amaranth.lib.wiring import In, Out
from concord.golden.accelerator.memory import check_range
from concord.hw.accelerator.accelerator import Accelerator as AcceleratorTop
from concord.hw.accelerator.accelerator import id_bits, modules
from concord.hw.accelerator.core_ports import core_ports
from concord.hw.core_gates import gates
from concord.hw.verilog import verilog
from concord.sim.machines.accelerators import AcceleratorMachine
from concord.sim.machines.build import link_models, model
from concord.sim.machines.host import MachineTimeout
from concord.sim.machines.library import Access, Fault, Memory, cached_verilog, check_faults, reset_in_register
from concord.spec.accelerator.accelerator import Accelerator, Core
from concord.spec.accelerator.registers import AcceleratorRegister, AcceleratorStatus

SHIM = Path(__file__).with_name("accelerator_shim.cpp")

MEMORY = Memory()  #: How the memory answers, where nothing else is asked for.

_POINTER, _WORD, _LONG = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
_FUNCTIONS = {  # Type of the result, and of the arguments after the handle of the chip.
    "create": (_POINTER, ()), "destroy": (None, ()), "trace": (ctypes.c_int, (ctypes.c_char_p, _LONG)),
    "read": (_WORD, (_WORD,)), "write": (None, (_WORD, _WORD)), "step": (None, (_LONG,)),
    "run": (ctypes.c_int, (_LONG,)), "interrupt": (_WORD, ()), "cycles": (_LONG, ()), "pause": (_LONG, (_WORD,)),
    "faults": (ctypes.c_int, ()), "dram": (None, (_LONG, _WORD, _WORD, _WORD)),
    "dram_fault": (None, (_LONG, _WORD, _WORD)), "dram_move": (None, (_WORD, _POINTER, _LONG, _WORD)),
    "dram_bytes": (_LONG, (_WORD,)), "dram_bursts": (_LONG, (_WORD,)), "dram_owed": (_LONG, ()),
    "dram_rule": (ctypes.c_char_p, ())}


class OpenAccelerator(AcceleratorTop):
    """An accelerator without its cores, whose wires to core k are ports core{k}_*."""

    def __init__(self, accelerator: Accelerator):
        super().__init__(accelerator, {
            f"core{number}_{name}": member.flip() for number, config in enumerate(accelerator.cores)
            for name, member in core_ports(config).items()})

    def _core(self, number, met):
        m = Module()
        for name, (flow, wire) in met.items():
            port = getattr(self, f"core{number}_{name}")
            m.d.comb += Value.cast(port).eq(wire) if flow == In else wire.eq(Value.cast(port))
        return m


def accelerator_verilog(accelerator: Accelerator, name: str = "accelerator") -> str:
    """Verilog of an accelerator, whose top module has a name: the top, and a module for each kind of core."""
    parts = [cached_verilog(f"{name}{accelerator}", lambda: verilog(AcceleratorTop(accelerator), name))]
    return "\n".join([*parts, *(core_verilog(config, module) for config, module in modules(accelerator).items())])


def core_verilog(core: Core, name: str) -> str:
    """Verilog of a core, whose top module has a name."""
    return cached_verilog(f"core {name}{core}", lambda: verilog(gates(core), name))


def library(accelerator: Accelerator, *, trace: bool = False) -> Path:
    """The shared library of an accelerator. Each kind of core is Verilated once, apart from the top."""
    top = cached_verilog(f"open {accelerator}", lambda: verilog(OpenAccelerator(accelerator), "nnp"))
    kinds = {"Vtop": top} | {f"V{module}": core_verilog(config, "nnp") for config, module in
                             modules(accelerator).items()}
    made = [model(reset_in_register(text), "nnp", prefix, waves=trace) for prefix, text in kinds.items()]
    return link_models(made, SHIM, {"cores.h": _cores_header(accelerator)}, waves=trace, defines=[
        f"-DDRAM={accelerator.bus}", f"-DIDS={1 << id_bits(accelerator)}"])


def _escaped(name: str) -> str:
    """The name that Verilator gives a port in C++."""
    return name.replace("__", "___05F")


def _cores_header(accelerator: Accelerator) -> str:
    """C++ that connects the cores with the top."""
    kinds = [f"V{modules(accelerator)[config]}" for config in accelerator.cores]
    wires = [(f"core{k}->{_escaped(name)}", f"top.core{k}_{_escaped(name)}", member.flow)
             for k, core in enumerate(accelerator.cores) for name, member in core_ports(core).items()]
    methods = {
        "void give(Vtop& top)": [f"{theirs} = {ours};" for ours, theirs, flow in wires if flow == Out],
        "void take(Vtop& top)": [f"{ours} = {theirs};" for ours, theirs, flow in wires if flow == In] + [
            f"core{k}->rst = top.rst;" for k in range(len(kinds))],
        **{head: [line.format(k) for k in range(len(kinds))] for head, line in {
            "void eval(int clk)": "core{0}->clk = clk, core{0}->eval();", "void final()": "core{}->final();",
            "template <class File> void trace(File* file)": "core{}->trace(file, 99);"}.items()}}
    lines = ["#pragma once", *(f'#include "{kind}.h"' for kind in dict.fromkeys(kinds)), "struct Cores {"]
    lines += [f"std::unique_ptr<{kind}> core{k};" for k, kind in enumerate(kinds)]
    made = [f'core{k}(new {kind}(&context, "core{k}"))' for k, kind in enumerate(kinds)]
    lines.append(f"explicit Cores(VerilatedContext& context) : {', '.join(made)} {{}}")
    for head, body in methods.items():
        lines += [f"{head} {{", *body, "}"]
    return "\n".join([*lines, "};\n"])


class AcceleratorLibrary(AcceleratorMachine):
    """One Verilated accelerator in this process, with its memory.

    Args:
        accelerator: The cores and the memory.
        seed:        Seed of the memory's stalls.
        memory:      How the memory answers.
        trace:       File to write a waveform (VCD) to.
        trace_from:  Clock cycle at which the waveform begins.
    """

    def __init__(self, accelerator: Accelerator, *, seed: int = 0, memory: Memory = MEMORY,
                 trace: Path | None = None, trace_from: int = 0):
        self.accelerator = accelerator
        self._library = ctypes.CDLL(str(library(accelerator, trace=trace is not None)))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(self._library, f"nnp_{name}")
            function.restype = result
            function.argtypes = arguments if name == "create" else (_POINTER, *arguments)
        self._chip = self._library.nnp_create()
        if trace is not None:
            self._call("trace", str(trace).encode(), trace_from)
        self._call("dram", seed, memory.latency, round(memory.stall * 65536), memory.mixed)
        self.fail(memory.fault_at, memory.fault)

    def _call(self, name: str, *arguments):
        return getattr(self._library, f"nnp_{name}")(self._chip, *arguments)

    def _check(self) -> None:
        check_faults(self._call)

    def read_register(self, address: int) -> int:
        return self._call("read", address)

    def write_register(self, address: int, value: int) -> None:
        self._call("write", address, value)
        self._check()

    def read_memory(self, address: int, count: int) -> bytes:
        check_range(address, count, self.accelerator.memory_bytes)
        data = np.empty(count, np.uint8)
        self._call("dram_move", address, data.ctypes.data, count, 0)
        return data.tobytes()

    def write_memory(self, address: int, data: bytes) -> None:
        check_range(address, len(data), self.accelerator.memory_bytes)
        bytes_ = np.frombuffer(data, np.uint8)
        self._call("dram_move", address, bytes_.ctypes.data, len(data), 1)

    def run(self, timeout: int = 100_000_000) -> AcceleratorStatus:
        ended = self._call("run", timeout)
        self._check()
        status = AcceleratorStatus(self.read_register(AcceleratorRegister.STATUS))
        if not ended:
            raise MachineTimeout(f"the accelerator has not ended its commands within {timeout:,} cycles: {status!r}")
        return status

    @property
    def interrupt(self) -> bool:
        return bool(self._call("interrupt"))

    @property
    def cycles(self) -> int:
        return self._call("cycles")

    def step(self, cycles: int) -> None:
        """Let `cycles` cycles pass."""
        self._call("step", cycles)
        self._check()

    def moved(self, *, written: bool) -> int:
        """Number of bytes that the memory has given, or taken, since power-up."""
        return self._call("dram_bytes", written)

    def fail(self, number: int, fault: Fault, access: Access = Access.ANY) -> None:
        """Let the response to burst `number` of this access, counted from power-up, have the `fault`."""
        self._call("dram_fault", number, fault, access)

    def bursts(self, access: Access) -> int:
        """Number of bursts of an access since power-up. Readers have the low bit of their ID, 0 in drivers."""
        return self._call("dram_bursts", access)

    @property
    def owed(self) -> int:
        """Number of bursts whose response has not ended."""
        return self._call("dram_owed")

    def pause(self, manager: int) -> int:
        """Longest time between two answers of the memory to a manager since the last call, in cycles.

        Manager 0 is the command processor; then come each core's driver and the Dram of the core, if it has one.
        """
        return self._call("pause", manager)

    def close(self) -> None:
        """End the simulation; a waveform is complete after this."""
        if self._chip is not None:
            self._call("destroy")
            self._chip = None
