"""Pipelines of the fixed-latency units: delay lines, and named values that move through stages."""

from collections import ChainMap
from collections.abc import Callable, Collection, Mapping

from amaranth import *
from amaranth.lib.memory import Memory


def delay(m: Module, signal, cycles: int, *, reset_less: bool = True):
    """`signal`, delayed by `cycles` cycles. The registers hold data, so a reset does not clear them."""
    if not Shape.cast(signal.shape()).width:
        return signal  # a register without bits cannot be written in Verilog
    for _ in range(cycles):
        later = Signal(signal.shape(), reset_less=reset_less)
        m.d.sync += later.eq(signal)
        signal = later
    return signal


def delay_control(m: Module, signal, cycles: int):
    """`signal`, of control bits, delayed by `cycles` cycles. Unlike with `delay`, a reset clears the registers."""
    return delay(m, signal, cycles, reset_less=False)


def delay_in_memory(m: Module, name: str, signal, cycles: int):
    """Bits of `signal`, delayed by `cycles` cycles, at least 3, in a memory: fewer cells than as many registers."""
    m.submodules[name] = memory = Memory(shape=len(signal), depth=cycles - 1, init=[])
    write, read = memory.write_port(), memory.read_port(domain="comb")
    place = Signal(range(memory.depth))
    m.d.sync += place.eq(Mux(place == memory.depth - 1, 0, place + 1))
    m.d.comb += [write.en.eq(1), write.addr.eq(place), write.data.eq(signal), read.addr.eq(place)]
    return delay(m, read.data, 1)


def copies(m: Module, signal, count: int, *, reset_less: bool = True) -> list:
    """`signal` one cycle later in `count` registers, of which each drives a part of what `signal` would drive alone.

    Synthesis merges equal registers; it leaves those with the attribute `keep` apart, see `hw.netlist`.
    """
    made = [Signal(signal.shape(), name=f"copy{k}", reset_less=reset_less, attrs={"keep": 1}) for k in range(count)]
    m.d.sync += [copy.eq(signal) for copy in made]
    return made


class Registered(Mapping):
    """The values of `before`, one cycle later; only values that are read get registers."""

    def __init__(self, m: Module, before: Mapping):
        self.m, self.before, self.made = m, before, {}

    def __getitem__(self, name: str):
        if name not in self.made:
            self.made[name] = delay(self.m, Value.cast(self.before[name]), 1)
        return self.made[name]

    def __iter__(self):
        return iter(self.before)

    def __len__(self):
        return len(self.before)


def follow(values: Mapping, made: Mapping) -> Mapping:
    """`values`, and the values that a stage computes from them."""
    return ChainMap(dict(made), values)


#: Computes further values of a pipeline from those that it has, a module, and the platform of its elaboration.
Step = Callable[[Mapping, Module, object], Mapping]


def in_steps(values: Mapping, steps: Mapping[str, Step], cuts: Collection[str], m: Module, platform) -> Mapping:
    """`values` after some steps. Registers lie behind the steps that `cuts` names, and behind no other step."""
    for name, step in steps.items():
        values = follow(values, step(values, m, platform))
        if name in cuts:
            values = Registered(m, values)
    return values
