"""A netlist as tables in Verilog: loops evaluate its cells, each after the cells that it depends on.

As instances, the cells of a machine become tens of megabytes of C++, which take longer to compile than the netlist
takes to make. As tables they are built within seconds. A test holds the tables to Yosys's own models of the cells.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

#: A cell of a netlist, as Yosys's JSON has it.
Cell = Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class CellKind:
    """How cells of one type are evaluated. Ports are given by name and number of bits.

    Attributes:
        inputs:   Ports on which the outputs depend.
        outputs:  Ports.
        clocked:  Ports that are read at the clock edge.
        constant: Parameters that are numbers of 16 bits.
        body:     Verilog that sets the outputs of cell k: `IN[n]` and `OUT[n]` are bit n of all inputs and outputs, and
                  `CONST[n]` is a constant.
        fixed:    Values that parameters must have.
    """

    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]
    clocked: tuple[tuple[str, int], ...] = ()
    constant: tuple[str, ...] = ()
    body: str = ""
    fixed: tuple[tuple[str, str], ...] = ()


_HALF = """\
          table_ = CONST[{half}] >> {{IN[{d}], IN[{c}], IN[{b}], IN[{a}]}};
          OUT[{half}] = table_ ^ carry;
          carry = table_ ? carry : CONST[{half}] >> {{IN[{b}], IN[{a}]}};
"""
_HALVES = "".join(_HALF.format(half=half, a=4 * half, b=4 * half + 1, c=4 * half + 2, d=4 * half + 3)
                  for half in range(2))
#: Cells between registers, by their type.
KINDS = {
    "LUT4": CellKind(
        inputs=(("A", 1), ("B", 1), ("C", 1), ("D", 1)), outputs=(("Z", 1),), constant=("INIT",),
        body="          OUT[0] = CONST[0] >> {IN[3], IN[2], IN[1], IN[0]};\n"),
    "CCU2C": CellKind(
        inputs=(*((f"{name}{half}", 1) for half in range(2) for name in "ABCD"), ("CIN", 1)),
        outputs=(("S0", 1), ("S1", 1), ("COUT", 1)), constant=("INIT0", "INIT1"),
        body=f"          carry = IN[8];\n{_HALVES}          OUT[2] = carry;\n",
        fixed=(("INJECT1_0", "NO"), ("INJECT1_1", "NO"))),
    "TRELLIS_DPR16X4": CellKind(
        inputs=(("RAD", 4),), outputs=(("DO", 4),), clocked=(("WAD", 4), ("DI", 4), ("WRE", 1)),
        body="          for (n = 0; n < 4; n = n + 1)\n"
             "            OUT[n] = words[{k[26:0], IN[3], IN[2], IN[1], IN[0]}][n];\n",
        fixed=(("WCKMUX", "WCK"), ("WREMUX", "WRE"))),
    "MULT18X18D": CellKind(
        inputs=(*((f"{port}{k}", 1) for port in "AB" for k in range(18)), ("SIGNEDA", 1), ("SIGNEDB", 1)),
        outputs=tuple((f"P{k}", 1) for k in range(36)),
        body="          for (n = 0; n < 18; n = n + 1) begin\n"
             "            a[n] = IN[n];\n"
             "            b[n] = IN[18 + n];\n"
             "          end\n"
             "          a[18] = IN[36] & a[17];\n"
             "          b[18] = IN[37] & b[17];\n"
             "          product = $signed(a) * $signed(b);\n"
             "          for (n = 0; n < 36; n = n + 1) OUT[n] = product[n];\n"),
}
#: Values of parameters of a flip-flop that have a table; the first one is what it has without the parameter.
FLIP_FLOP = {"CLKMUX": ("CLK",), "SRMODE": ("LSR_OVER_CE",), "LSRMODE": ("LSR",), "CEMUX": ("1", "CE", "INV"),
             "LSRMUX": ("LSR", "INV"), "REGSET": ("RESET", "SET")}
REGISTER, MEMORY = "TRELLIS_FF", "DP16KD"  #: Types of cells that hold bits.
POWER = 1  #: Net that is always 1; the net 0 is always 0.
RESET = "rst"  #: Port that resets; it is a register where a machine runs, see `library.reset_in_register`.
SCOPE = "$scopeinfo"  #: Type of a cell that only tells where others come from.


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Cells of one type that do not depend on each other.

    Attributes:
        kind:  Their type.
        first: Number of the first one, of all cells of the type.
        end:   Number of the one behind the last one.
        net:   Net of the first output of the first one.
        wet:   Whether they depend on inputs.
    """

    kind: str
    first: int
    end: int
    net: int
    wet: bool

    @property
    def base(self) -> int:
        """Net of the first output of cell 0, if the type had one, modulo 2**32."""
        return self.net - self.first * len(_ports(KINDS[self.kind].outputs)) & 0xFFFFFFFF


class Tables:
    """The tables of one module.

    Args:
        module: The module, as Yosys's JSON has it.
        clock:  Name of the port that clocks all registers and memories.

    Raises:
        ValueError: a cell is of a type or in a mode that has no table.
    """

    def __init__(self, module: Mapping, clock: str = "clk"):
        ports = module["ports"]
        self.clock, self._clock = clock, ports[clock]["bits"]
        self.cells: dict[str, list[Cell]] = defaultdict(list)
        for cell in module["cells"].values():
            self.cells[cell["type"]].append(cell)
        self.cells.pop(SCOPE, None)
        self._check()
        self._nets: dict[int | str, int] = {"0": 0, "1": POWER, "x": 0}
        self._count = 2
        inputs = {name: port["bits"] for name, port in ports.items() if port["direction"] == "input"}
        del inputs[clock]  # it has no net, and only clocks
        #: Signals that bring bits from outside of the tables, and their nets: without inputs, and inputs.
        self.held = self._bring(RESET, inputs.pop(RESET, []))
        for k, cell in enumerate(self.cells[MEMORY]):
            for port in driven(cell):
                self.held += self._bring(f"_c{k}_{port}", cell["connections"][port])
        self.inputs = [pair for name, bits in inputs.items() for pair in self._bring(name, bits)]
        self._wet = {bit for bits in inputs.values() for bit in bits}
        self.registers = self._count  #: Net of the first register.
        self._number(bit for cell in self.cells[REGISTER] for bit in cell["connections"]["Q"])
        self.runs = list(self._runs())
        self.width = max((self._count - 1).bit_length(), 1)  #: Bits of the number of a net.

    def _bring(self, name: str, bits: list[int | str]) -> list[tuple[str, int]]:
        """Number the bits of a signal; each in Verilog, and its net."""
        first = self._count
        self._number(bits)
        return [(f"{name}[{k}]" if len(bits) > 1 else name, first + k) for k in range(len(bits))]

    def _check(self):
        if unknown := self.cells.keys() - {*KINDS, REGISTER, MEMORY}:
            raise ValueError(f"the netlist has cells of type {', '.join(sorted(unknown))}, which have no tables")
        for name, cells in self.cells.items():
            fixed = KINDS[name].fixed if name in KINDS else ()
            for (key, value), cell in ((pair, cell) for pair in fixed for cell in cells):
                if (found := cell["parameters"].get(key)) != value:
                    raise ValueError(f"a {name} has {key} {found}, and only {value} has a table")
        for key, values in FLIP_FLOP.items():
            for cell in self.cells[REGISTER]:
                if (found := _word(cell, key)) not in values:
                    raise ValueError(f"a {REGISTER} has {key} {found}, and only {' or '.join(values)} has a table")
        clocks = {bit for name, port in ((REGISTER, "CLK"), ("TRELLIS_DPR16X4", "WCK"))
                  for cell in self.cells[name] for bit in cell["connections"][port]}
        if not clocks <= set(self._clock):
            raise ValueError(f"a cell has another clock than {self.clock}, and tables have one")

    def _number(self, bits: Iterable[int | str]):
        """Give the next numbers to nets; what goes nowhere gets one, too."""
        for bit in bits:
            if isinstance(bit, int):
                self._nets[bit] = self._count
            self._count += 1

    def _runs(self) -> Iterator[Run]:
        """Cells of one type that do not depend on each other, run after run. Cells get the order of their runs."""
        cells = [(name, cell) for name in KINDS for cell in self.cells[name]]
        drivers = {bit: k for k, (name, cell) in enumerate(cells) for bit in _ends(cell, KINDS[name].outputs)
                   if isinstance(bit, int)}
        ends = [_ends(cell, KINDS[name].inputs) for name, cell in cells]
        before = [{drivers[bit] for bit in bits if bit in drivers} for bits in ends]
        levels = _levels(before, [not self._wet.isdisjoint(bits) for bits in ends])
        for name in KINDS:
            self.cells[name] = []
        order = sorted(range(len(cells)), key=lambda k: (levels[k], cells[k][0]))
        for ((wet, _), name), group in groupby(order, key=lambda k: (levels[k], cells[k][0])):
            first, net = len(self.cells[name]), self._count
            for _, cell in (cells[k] for k in group):
                self.cells[name].append(cell)
                self._number(_ends(cell, KINDS[name].outputs))
            yield Run(kind=name, first=first, end=len(self.cells[name]), net=net, wet=wet)

    def nets(self, cells: Iterable[Cell], ports: tuple[tuple[str, int], ...]) -> list[int]:
        """Numbers of the nets at some ports of cells, cell after cell."""
        return [self._nets[bit] for cell in cells for bit in _ends(cell, ports)]

    def net(self, bit: int | str) -> str:
        """A bit of a port in Verilog; the clock is a signal of its own, so that Verilator sees one clock."""
        return self.clock if [bit] == self._clock else f"_all[{self._nets[bit]}]"


def _levels(before: list[set[int]], wet: list[bool]) -> list[tuple[bool, int]]:
    """For each cell, whether it depends on inputs, and the length of the longest way to it.

    Args:
        before: For each cell, the cells that drive it.
        wet:    For each cell, whether an input drives it.

    Raises:
        ValueError: cells depend on each other in a circle.
    """
    behind, left, levels = defaultdict(list), [len(cells) for cells in before], [(one, 0) for one in wet]
    for k, cells in enumerate(before):
        for one in cells:
            behind[one].append(k)
    ready = [k for k, count in enumerate(left) if not count]
    for one in ready:  # grows
        for k in behind[one]:
            levels[k] = levels[k][0] or levels[one][0], max(levels[k][1], levels[one][1] + 1)
            left[k] -= 1
            if not left[k]:
                ready.append(k)
    if len(ready) < len(before):
        raise ValueError(f"{len(before) - len(ready)} cells depend on each other in a circle")
    return levels


def _ends(cell: Cell, ports: tuple[tuple[str, int], ...]) -> list[int | str]:
    """What is at some ports of a cell, bit after bit; x where nothing is."""
    return [bit for name, width in ports for bit in cell["connections"].get(name, ["x"] * width)]


def driven(cell: Cell) -> list[str]:
    """Output ports of a cell that go somewhere."""
    return [port for port, bits in cell["connections"].items()
            if cell["port_directions"][port] == "output" and set(bits) != {"x"}]


def table_lines(made: Tables) -> Iterator[str]:
    """Lines of Verilog for all cells but block RAM, whose outputs are the wires `_c0_DOA0` and so on.

    All that it declares begins with an underscore or a capital letter, so that no port has the same name.
    """
    for line in _lines(made):
        yield _OWN.sub(r"_\1", line).replace("`", "")


def _lines(made: Tables) -> Iterator[str]:
    """Lines of Verilog without underscores; a signal that comes from outside stands behind a backquote."""
    registers, small = made.cells[REGISTER], made.cells["TRELLIS_DPR16X4"]
    yield f"  reg net [0:{(1 << made.width) - 1}];"
    yield f"  reg all [0:{(1 << made.width) - 1}];"
    yield f"  reg held [0:{max(len(registers), 1) - 1}];"
    yield f"  reg next [0:{max(len(registers), 1) - 1}];"
    yield f"  reg [3:0] words [0:{max(16 * len(small), 1) - 1}];"
    for kind, form in KINDS.items():
        yield from _table(f"{kind}_IN", made.width, made.nets(made.cells[kind], form.inputs))
        yield from _table(f"{kind}_CONST", 16, [_number(cell, key) for cell in made.cells[kind]
                                                for key in form.constant])
    yield from _table("SMALL_AT", made.width, made.nets(small, KINDS["TRELLIS_DPR16X4"].clocked) or [0])
    yield from _table("DI_NET", made.width, made.nets(registers, (("DI", 1),)) or [0])
    yield from _table("CE_NET", made.width, [
        made.nets([cell], (("CE", 1),))[0] if _word(cell, "CEMUX") != "1" else POWER for cell in registers] or [0])
    yield from _table("LSR_NET", made.width, made.nets(registers, (("LSR", 1),)) or [0])
    yield from _table("MODE", 3, [
        4 * (_word(cell, "REGSET") == "SET") + 2 * (_word(cell, "LSRMUX") == "INV") + (_word(cell, "CEMUX") == "INV")
        for cell in registers] or [0])
    kinds = list(KINDS)
    for label, values in (("KIND", [kinds.index(run.kind) for run in made.runs]),
                          ("FIRST", [run.first for run in made.runs]), ("END", [run.end for run in made.runs]),
                          ("BASE", [run.base for run in made.runs])):
        yield from _table(f"RUN_{label}", 32, values or [0])
    yield from _contents(small)
    yield _CLOCKED.format(registers=len(registers), small=len(small), clock=f"`{made.clock}")
    dry = sum(not run.wet for run in made.runs)
    yield from _evaluation("net", made, made.held, range(dry))
    yield from _evaluation("all", made, made.inputs, range(dry, len(made.runs)))


def _evaluation(array: str, made: Tables, sources: list[tuple[str, int]], runs: range) -> Iterator[str]:
    """Lines that evaluate runs of cells in an array of nets: `net`, without inputs, or `all`.

    Verilator evaluates what depends on inputs three times a cycle, and all else once.
    """
    yield f"  always @* begin : evaluate_{array}"
    yield "    integer r, k, n, last, base;\n    reg table_, carry;\n    reg [18:0] a, b;\n    reg [37:0] product;"
    if array == "net":
        yield "    net[0] = 0;\n    net[1] = 1;"
        yield f"    for (k = 0; k < {len(made.cells[REGISTER])}; k = k + 1) net[{made.registers} + k] = held[k];"
    else:
        yield "    all = net;"
    for signal, net in sources:
        yield f"    {array}[{net}] = `{signal};"
    yield (f"    /*verilator unroll_disable*/ for (r = {runs.start}; r < {runs.stop}; r = r + 1) begin\n"
           "      last = RUN_END[r];\n      base = RUN_BASE[r];\n      case (RUN_KIND[r])")
    for number, (kind, form) in enumerate(KINDS.items()):
        if made.cells[kind]:
            yield (f"        {number}: for (k = RUN_FIRST[r]; k < last; k = k + 1) begin\n"
                   f"{_spelt(array, kind, form)}        end")
    yield "        default: ;\n      endcase\n    end\n  end"


#: Names that get an underscore.
_OWN = re.compile(r"(?<!`)\b(net|all|held|next|words|r|k|n|f|w|e|last|base|table_|carry|a|b|product)\b")
#: Registers and small memories at the clock edge. Registers change all at once, which Verilator does by one copy.
_CLOCKED = """\
  integer f, w, e;
  initial for (f = 0; f < {registers}; f = f + 1) begin
    next[f] = MODE[f][2];
    held[f] = MODE[f][2];
  end
  always @(posedge {clock}) begin
    for (f = 0; f < {registers}; f = f + 1)
      if (all[LSR_NET[f]] != MODE[f][1]) next[f] = MODE[f][2];
      else if (all[CE_NET[f]] != MODE[f][0]) next[f] = all[DI_NET[f]];
    held <= next;
    for (w = 0; w < {small}; w = w + 1) begin
      e = 9 * w;
      if (all[SMALL_AT[e + 8]])
        words[{{w[27:0], all[SMALL_AT[e + 3]], all[SMALL_AT[e + 2]], all[SMALL_AT[e + 1]], all[SMALL_AT[e]]}}] <=
          {{all[SMALL_AT[e + 7]], all[SMALL_AT[e + 6]], all[SMALL_AT[e + 5]], all[SMALL_AT[e + 4]]}};
    end
  end"""


def _spelt(array: str, kind: str, form: CellKind) -> str:
    """The body of a type of cells, with its tables."""
    taken, made = len(_ports(form.inputs)), len(_ports(form.outputs))
    text = re.sub(r"\bIN\[(.*?)\]", rf"{array}[{kind}_IN[{taken} * k + \1]]", form.body)
    text = re.sub(r"\bCONST\[(.*?)\]", rf"{kind}_CONST[{len(form.constant)} * k + \1]", text)
    return re.sub(r"\bOUT\[(.*?)\]", rf"{array}[base + {made} * k + \1]", text)


def _table(name: str, width: int, values: list[int]) -> Iterator[str]:
    """A table as a constant array, unless it is empty; its size is a power of two, so that no index is outside."""
    if values:
        values = values + [0] * ((1 << (len(values) - 1).bit_length()) - len(values))
        rows = (", ".join(f"{width}'d{value}" for value in values[k:k + 16]) for k in range(0, len(values), 16))
        yield f"  localparam [{width - 1}:0] {name} [0:{len(values) - 1}] = '{{\n    " + ",\n    ".join(rows) + "};"


def _contents(small: list[Cell]) -> Iterator[str]:
    """What small memories hold at first, where that is not 0."""
    for k, cell in enumerate(small):
        held = _number(cell, "INITVAL")
        for nibble in range(16):
            if held >> 4 * nibble & 15:
                yield f"  initial words[{16 * k + nibble}] = 4'd{held >> 4 * nibble & 15};"


def _number(cell: Cell, key: str) -> int:
    """A parameter that is a number; unknown bits are 0."""
    return int(cell["parameters"].get(key, "0").replace("x", "0"), 2)


def _word(cell: Cell, key: str) -> str:
    """A parameter of a flip-flop; Yosys's JSON adds a space to a text that would otherwise be a number."""
    return cell["parameters"].get(key, FLIP_FLOP[key][0]).rstrip()


def _ports(ports: tuple[tuple[str, int], ...]) -> list[tuple[str, int]]:
    """Each bit of some ports."""
    return [(name, k) for name, width in ports for k in range(width)]
