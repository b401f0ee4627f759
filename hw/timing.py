"""The machine without its numbers: what decides when things happen, for machines of any size.

Numbers that leave the core are cut off, and so is all that nothing else depends on. Units are those of the whole
machine; only tiles have one row, see `hw.lib.timekeeper`. What a number decides stays, such as the zero marks of tiles,
so that every cycle and every counter is that of the machine.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from amaranth.hdl import Module, Value, _ir
from amaranth.hdl._ast import Slice
from amaranth.hdl._nir import Net, Netlist
from concord.hw.cone import keep_cone
from concord.hw.core import Core
from concord.hw.lib.binary16_rounder import Binary16Rounder
from concord.hw.lib.timekeeper import Timekeeper
from concord.hw.mfu.activation import Activation
from concord.hw.mfu.adder import FloatAdder
from concord.hw.mfu.multiplier import FloatMultiplier
from concord.hw.mvm.tile_engine import TileEngine
from concord.hw.nnp import NNP
from concord.hw.verilog import verilog
from concord.spec.host.registers import Counter
from concord.spec.machine.config import Config

#: Units that give nothing but numbers. They stay empty, for a large machine has thousands of them.
ARITHMETIC = (Activation, Binary16Rounder, FloatAdder, FloatMultiplier, TileEngine)

#: Counters whose values depend on numbers; they stay 0.
OF_NUMBERS = tuple(counter for counter in Counter if counter.name.startswith(("OVERFLOW", "EXCESS", "LAZY")))


def timing_verilog(config: Config, name: str = "nnp") -> str:
    """Verilog of the machine `NNP(config)` without its numbers. It has the ports of the machine, and the same cycles.

    It takes the same messages. In those that it sends, all numbers are 0; so are the counters `OF_NUMBERS`, and the
    marks of NaN and infinity in STATUS.

    Raises:
        ValueError: hardware is not generated for such a machine.
    """
    with ExitStack() as stack:
        for unit in ARITHMETIC:
            stack.enter_context(_replaced(unit, "elaborate", lambda self, platform: Module()))
        return without_numbers(NNP(Timekeeper.of(config)), name)


def without_numbers(machine: NNP, name: str) -> str:
    """Verilog of what is left of a machine when the numbers that leave its core are cut off."""
    def cut(netlist: Netlist):
        keep_cone(netlist, {net for value in leaving(machine.core) for net in _nets(netlist, Value.cast(value))})

    with netlists(cut):
        return verilog(machine, name)


def leaving(core: Core) -> list:
    """The numbers that leave a core, or go to where a number may decide: vectors that are copied are no tiles.

    Words from NetQ may be tiles, whose zero marks they decide. What the host writes to Dram may be tiles, too; so only
    what the core computes is cut off on its way there.
    """
    config, events = core.config, core.events
    counted = [counter.name.lower() for counter in OF_NUMBERS if counter.name.lower() in events.shape().members]
    found = [core.out.p.word, core.reply.p.word, core.memories.copy.data, core.invalid_vector, core.invalid_matrix,
             *(events[name] for name in counted)]
    if config.vector_rf:
        found.append(core.entry_reply.p.entry)
    if config.lazy_update:
        found += [core.updated.p.word, core.updated.p.exponents]
    if config.dram_words:
        found.append(core.back.outside.p)
    if config.dram_words and config.vector_rf:
        found.append(core.mvm.host.entry)
    return found


@contextmanager
def netlists(change: Callable[[Netlist], None]) -> Iterator[None]:
    """`change` changes each netlist that Amaranth makes, before it is divided into modules with ports.

    `_ir` is no public part of Amaranth, of which pyproject.toml names one version.
    """
    divide = _ir._compute_net_flows

    def changed(netlist: Netlist):
        change(netlist)
        divide(netlist)

    with _replaced(_ir, "_compute_net_flows", changed):
        yield


@contextmanager
def _replaced(holder, name: str, value) -> Iterator[None]:
    """An attribute has another value for a while."""
    before = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, before)


def _nets(netlist: Netlist, value: Value) -> list[Net]:
    """The nets of a signal, or of a part of one."""
    if isinstance(value, Slice):
        return _nets(netlist, value.value)[value.start:value.stop]
    return list(netlist.signals[value])
