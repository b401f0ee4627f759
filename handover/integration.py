"""Files for an integrator beside the Verilog: ports, registers, instantiation template, FuseSoC core, lint waivers."""

import inspect
import re
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from amaranth.hdl import Value
from amaranth.lib.wiring import Component, In
from concord.handover.accelerator_driver import driver_files
from concord.handover.accelerator_registers import accelerator_register_files
from concord.handover.registers import register_files, rendered
from concord.hw.accelerator.accelerator import Accelerator, modules
from concord.hw.cascade import Cascade
from concord.hw.core_gates import gates
from concord.hw.host.axi_streams import AxiStreams, fields, streams
from concord.hw.nnp import NNP
from concord.hw.verilog import verilog
from concord.lib.extras import DISTRIBUTION, require
from concord.spec.accelerator.accelerator import Accelerator as AcceleratorSpec
from concord.spec.host.messages import MessageKind
from concord.spec.host.registers import Control, Counter, Register, Status
from concord.spec.isa.enum_docs import described
from concord.spec.isa.instructions import Error
from concord.spec.isa.memories import Mem
from concord.spec.isa.operations import BYPASS, Stage, operations
from concord.spec.machine.config import Config
from concord.spec.trainer.config import TrainerConfig

#: Names of the stages of a multi-function unit in the documentation of units.
STAGES = {Stage.ADD: "add stage", Stage.ACT: "activation stage", Stage.MUL: "multiply stage"}
TEMPLATES = Path(__file__).with_name("integration_templates")

#: Names of the machine's buses, by the prefix of their ports.
BUSES = {
    "s_axis": "AXI4-Stream, messages from the host",
    "m_axis": "AXI4-Stream, messages to the host",
    "s_axil": "AXI4-Lite, control and counters",
    "m_axi": "AXI4, the memory outside the chip",
}


CLOCKING = "clock and reset"
MACHINES = ("nnp", "cascade")  #: Names of tops that have registers: one machine, and a pipeline of several.

#: Warnings of `verilator --lint-only` that show no fault of the machine, each with the reason for it. Every version of
#: Verilator since 5.006 knows their names.
WAIVERS = {
    "WIDTH": "The back end writes constants with as many bits as they need, and `! x` for x == 0.",
    "CASEINCOMPLETE": "The back end gives a signal its default before a `casez`, instead of a default branch inside.",
    "CMPCONST": "A comparison that some configurations need is always true in this one.",
    "UNSIGNED": "A comparison with the first index, which is 0, is always true.",
    "UNOPTFLAT": "Older versions take a vector for a loop where some of its bits follow from others.",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ModulePort:
    """One port of a module.

    Attributes:
        name:      Name in Verilog.
        direction: "input" or "output".
        width:     Number of bits.
        bus:       Name of the bus that it belongs to.
    """

    name: str
    direction: str
    width: int
    bus: str


def package(unit: Component, name: str, preset: str, config: Config | AcceleratorSpec | TrainerConfig
            ) -> dict[str, str]:
    """The text of each file, by its name. Streams of the unit become AXI4-Stream buses."""
    buses = {prefix: shape for prefix, _, shape in streams(unit).values()}
    dut = AxiStreams(unit) if buses else unit
    text = verilog(dut, name)
    # A module without registers has neither clock nor reset.
    found = [port for port in ports(dut, list(buses)) if port.bus != CLOCKING or f"input {port.name};" in text]
    values = {
        "name": name,
        "preset": preset,
        "core": re.sub(r"[^\w.-]", "_", preset, flags=re.ASCII),  # as FuseSoC takes names
        "config": config,
        "ports": found,
        "fields": {_stream_bus(prefix): fields(shape) for prefix, shape in buses.items()},
        "buses": list(dict.fromkeys(port.bus for port in found)),
        "version": version(DISTRIBUTION),
        "documentation": (inspect.getdoc(type(unit)) or "").splitlines(),
        "latency": _latency(unit),
        "codes": codes(unit),
        "waivers": WAIVERS,
        "registers": [(*row, Register(row[0]).access) for row in described(Register)[: -1]],
        "counters": [(Register.COUNTERS + 4 * k, name, meaning) for k, name, meaning in described(Counter)],
        "control": described(Control),
        "status": described(Status),
        "errors": described(Error),
        "kinds": described(MessageKind),
        "memories": described(Mem),
    }
    pages = {
        f"{name}.core": "core.j2",
        f"{name}.vlt": "waivers.vlt.j2",
        f"{name}_instance.v": "instance.v.j2",
        "ports.md": "ports.md.j2",
    }
    if name in MACHINES:
        pages["registers.md"] = "registers.md.j2"
    files = {f"{name}.v": text}
    return files | {page: rendered(source, values, TEMPLATES) for page, source in pages.items()}


def ports(dut: Component, streams: list[str]) -> list[ModulePort]:
    """Clock, reset, and every port of the component's signature; `streams` are the prefixes of AXI4-Stream buses."""
    found = [ModulePort(name=name, direction="input", width=1, bus=CLOCKING) for name in ("clk", "rst")]
    for path, member, value in dut.signature.flatten(dut):
        name = "__".join(map(str, path))
        direction = "input" if member.flow == In else "output"
        found.append(ModulePort(name=name, direction=direction, width=len(Value.cast(value)),
                                bus=_bus(name, path, streams)))
    return found


def codes(unit: Component) -> dict[str, list[tuple[int, str, str]]]:
    """Code, name and meaning of each value of the enumerations and stages in the attribute `codes` of a unit."""
    more = getattr(unit, "more", False)
    return {STAGES[it] if isinstance(it, Stage) else it.__name__:
            _stage_codes(it, more=more) if isinstance(it, Stage) else described(it)
            for it in getattr(unit, "codes", ())}


def _stage_codes(stage: Stage, *, more: bool) -> list[tuple[int, str, str]]:
    """Code, name and meaning of all that a stage of a multi-function unit can be told."""
    rows = [(operation.code, operation.name.lower(), operation.meaning) for operation in operations(stage, more=more)]
    return [(BYPASS, "bypass", "value, its bits unchanged"), *rows]


def _latency(unit: Component) -> int | None:
    """Number of cycles from a unit's operands to its result; None if it is not constant."""
    latency = getattr(unit, "latency", None)
    return latency if isinstance(latency, int) else None


def _stream_bus(prefix: str) -> str:
    return f"{prefix}: AXI4-Stream"


def _bus(name: str, path: tuple, streams: list[str]) -> str:
    for prefix in streams:
        if name.startswith(f"{prefix}_t"):
            return _stream_bus(prefix)
    for prefix, role in BUSES.items():
        if found := re.match(rf"((machine\d+_)?{prefix})_", name):
            return f"{found[1]}: {role}"
    if path[-1] in ("valid", "ready") or "payload" in path:
        return f"{path[0]}: stream"
    return str(path[0]) if len(path) > 1 else "other signals"


def verilog_files(unit: Component, name: str, machine: str, config: Config | AcceleratorSpec | TrainerConfig
                  ) -> dict[str, str]:
    """The text of each file, by its name.

    Args:
        unit:    The unit, the whole machine, a pipeline of machines, or an accelerator.
        name:    Name of the unit; "nnp" is the machine, and "cascade" are several, which have registers, too.
        machine: Name of the machine.
        config:  Its configuration: that of the machine, the accelerator, or the core that trains.

    Raises:
        ValueError: the packages of the extra "synthesis" are not installed.
    """
    require("synthesis")
    files = package(unit, name, machine, config)
    if isinstance(unit, Cascade):
        files[f"{name}.v"] += "".join("\n" + verilog(NNP(each), module) for each, module in unit.modules.items())
    if isinstance(unit, Accelerator):
        files[f"{name}.v"] += "".join(
            "\n" + verilog(gates(each), module) for each, module in modules(unit.accelerator).items())
        files |= driver_files(unit.accelerator) | accelerator_register_files(unit.accelerator)
    return files | (register_files(config) if isinstance(config, Config) and name in MACHINES else {})
