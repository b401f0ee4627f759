"""The cone of influence of a netlist's outputs: the netlist without the bits that no output depends on.

A netlist is Amaranth's, between elaboration and Verilog: cells, whose output bits are the *nets*. `amaranth.hdl._nir`
is no public part of Amaranth, of which pyproject.toml names one version.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from amaranth.hdl import _nir
from amaranth.hdl._nir import Net, Netlist, Value

#: Operators whose output bit k depends on bit k of their numbers, and those where it depends on bits up to k.
_BITWISE, _CARRYING = ("~", "&", "|", "^", "m"), ("+", "-", "*")
_READS = _nir.SyncReadPort, _nir.AsyncReadPort
_CONSTANTS = Net.from_const(0), Net.from_const(1)


def keep_cone(netlist: Netlist, cuts: Collection[Net] = ()) -> None:
    """Remove, in place, each bit that no output of the top depends on, if the nets `cuts` are 0; and all assertions.

    Registers, memories, multiplexers, adders and bitwise operators lose single bits. The ports of the top stay as they
    are, and signals keep their names if all their bits are left.

    Raises:
        NotImplementedError: the netlist has a cell of a kind that machines do not have in simulations.
    """
    live = _live(netlist, frozenset(cuts))
    renumbered = {index: k for k, index in enumerate(sorted(live))}
    nets = {Net.from_cell(index, bit): Net.from_cell(renumbered[index], k if index else bit)
            for index, bits in live.items() for k, bit in enumerate(sorted(bits))}
    for net in cuts:
        nets.pop(net, None)
    names = _Renamed(nets)
    cells = [netlist.cells[index] for index in renumbered]
    for index, cell in zip(renumbered, cells, strict=True):
        _narrow(cell, sorted(live[index]), live, renumbered)
        cell.resolve_nets(names)
    _keep_signals(netlist, names)
    for module in netlist.modules:
        module.cells = [renumbered[index] for index in module.cells if index in renumbered]
    netlist.cells[:] = cells


class _Renamed:
    """Stands in for a netlist where its cells ask what drives a net: what is left has new nets, all else is 0."""

    def __init__(self, nets: Mapping[Net, Net]):
        self.nets = nets

    def resolve_net(self, net: Net) -> Net:
        return net if net in _CONSTANTS else self.nets.get(net, _CONSTANTS[0])

    def resolve_value(self, value: Value) -> Value:
        return Value(map(self.resolve_net, value))


def _live(netlist: Netlist, cuts: Collection[Net]) -> dict[int, set[int]]:
    """The output bits of each cell that is left; of a memory, its columns; of a port that writes it, none."""
    cells, live, writers = netlist.cells, defaultdict(set), defaultdict(list)
    for index, cell in enumerate(cells):
        if isinstance(cell, _nir.SyncWritePort):
            writers[cell.memory].append(index)
    waiting = [net for value in netlist.top.ports_o.values() for net in value]
    live[0] = set()  # the top stays even where it has no input
    while waiting:
        net = waiting.pop()
        if net.is_const or net in cuts or net.bit in live[net.cell]:
            continue
        cell = cells[net.cell]
        bits = _together(cell, net.bit)
        live[net.cell].update(bits)
        for bit in bits:
            waiting += _needs(cell, bit)
            if isinstance(cell, _READS) and bit not in live[cell.memory]:
                live[cell.memory].add(bit)
                for index in writers[cell.memory]:
                    live[index] = set()
                    waiting += _written(cells[index], bit)
    return {index: live[cells[index].memory] if isinstance(cells[index], _READS) else bits
            for index, bits in live.items()}  # a port reads whole rows


def _together(cell: _nir.Cell, bit: int) -> Iterable[int]:
    """The output bits that a cell keeps if it keeps this one."""
    match cell:
        case _nir.Operator(operator=name) if name in _BITWISE:
            return (bit,)
        case _nir.Operator(operator=name) if name in _CARRYING:
            return range(bit + 1)
        case _nir.PriorityMatch():
            return range(bit + 1)
        case _nir.Operator() | _nir.Part():
            return range(cell.width)
    return (bit,)


def _needs(cell: _nir.Cell, bit: int) -> Iterable[Net]:
    """The nets that an output bit of a cell depends on, but for those that write memories."""
    match cell:
        case _nir.Top():
            return ()
        case _nir.Operator(operator="m", inputs=(condition, *values)):
            return [*condition, *(value[bit] for value in values)]
        case _nir.Operator(operator=name, inputs=values) if name in _BITWISE or name in _CARRYING:
            return [value[bit] for value in values]  # a carrying one keeps its lower bits, too
        case _nir.Operator() | _nir.Part():
            return cell.input_nets()
        case _nir.FlipFlop():
            return cell.data[bit], cell.clk, cell.arst
        case _nir.AssignmentList():
            inside = [each for each in cell.assignments if 0 <= bit - each.start < len(each.value)]
            return [cell.default[bit], *(net for each in inside for net in (each.cond, each.value[bit - each.start]))]
        case _nir.PriorityMatch():
            return cell.en, cell.inputs[bit]
        case _nir.Matches():  # the first digit of a pattern is that of the highest bit
            return [net for net, *digits in zip(cell.value[::-1], *cell.patterns, strict=True) if {*digits} != {"-"}]
        case _nir.SyncReadPort():
            return *cell.addr, cell.en, cell.clk
        case _nir.AsyncReadPort():
            return cell.addr
    raise NotImplementedError(f"{cell!r}: say in hw.cone what an output of such a cell depends on")


def _written(port: _nir.SyncWritePort, bit: int) -> Iterable[Net]:
    """The nets that a column of a memory depends on by one of the ports that write it."""
    return *port.addr, port.data[bit], port.en[bit * len(port.en) // len(port.data)], port.clk


def _narrow(cell: _nir.Cell, bits: Sequence[int], live: Mapping[int, set[int]], renumbered: Mapping[int, int]) -> None:
    """Leave a cell these output bits; the cells that it names are those at their new indices."""
    match cell:
        case _nir.Operator(operator="m", inputs=(condition, *values)):
            cell.inputs = condition, *(_of(value, bits) for value in values)
        case _nir.Operator(operator=name, inputs=values) if name in _BITWISE or name in _CARRYING:
            cell.inputs = tuple(_of(value, bits) for value in values)
        case _nir.FlipFlop():
            cell.data, cell.init = _of(cell.data, bits), _digits(cell.init, bits)
        case _nir.PriorityMatch():
            cell.inputs = _of(cell.inputs, bits)
        case _nir.AssignmentList():
            cell.default = _of(cell.default, bits)
            cell.assignments = tuple(part for each in cell.assignments for part in _part(each, bits))
        case _nir.Memory():
            cell.width, cell.init = len(bits), tuple(_digits(row, bits) for row in cell.init)
        case _nir.SyncWritePort():
            columns = sorted(live[cell.memory])
            if len(cell.en) > 1:
                cell.en = Value(cell.en[bit * len(cell.en) // len(cell.data)] for bit in columns)
            cell.data, cell.memory = _of(cell.data, columns), renumbered[cell.memory]
        case _nir.SyncReadPort() | _nir.AsyncReadPort():
            cell.width, cell.memory = len(bits), renumbered[cell.memory]
            if isinstance(cell, _nir.SyncReadPort):
                cell.transparent_for = tuple(renumbered[port] for port in cell.transparent_for)


def _of(value: Value, bits: Sequence[int]) -> Value:
    """These bits of a value."""
    return Value(value[bit] for bit in bits)


def _digits(number: int, bits: Sequence[int]) -> int:
    """These bits of a number."""
    return sum((number >> bit & 1) << k for k, bit in enumerate(bits))


def _part(assignment: _nir.Assignment, bits: Sequence[int]) -> list[_nir.Assignment]:
    """The part of an assignment whose bits are left, neighbours then; nothing if none is."""
    inside = [(k, bit - assignment.start) for k, bit in enumerate(bits)
              if 0 <= bit - assignment.start < len(assignment.value)]
    return [_nir.Assignment(cond=assignment.cond, start=inside[0][0], src_loc=assignment.src_loc,
                            value=_of(assignment.value, [bit for _, bit in inside]))] if inside else []


def _keep_signals(netlist: Netlist, names: _Renamed) -> None:
    """Leave the signals, and their names in modules, whose bits are all left."""
    for signal in [signal for signal, value in netlist.signals.items() if not names.nets.keys() >= {*value}]:
        del netlist.signals[signal], netlist.signal_fields[signal]
    for module in netlist.modules:
        for signal in [signal for signal in module.signal_names if signal not in netlist.signals]:
            del module.signal_names[signal]
    for signal, value in netlist.signals.items():
        netlist.signals[signal] = names.resolve_value(value)
        for field in netlist.signal_fields[signal].values():
            field.value = names.resolve_value(field.value)
