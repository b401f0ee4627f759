"""Cores under a command processor, which share one memory."""

from collections.abc import Mapping
from types import MappingProxyType

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import Flow, In, Member, Out
from amaranth.utils import bits_for
from concord.hw.accelerator.arbiter import Arbiter
from concord.hw.accelerator.command_processor import CommandProcessor
from concord.hw.accelerator.core_ports import core_ports
from concord.hw.accelerator.driver import Driver
from concord.hw.accelerator.meeting_place import MeetingPlace
from concord.hw.accelerator.trainer_driver import TrainerDriver
from concord.hw.accelerator.window_router import LITE, WindowRouter
from concord.hw.dram.axi import wires
from concord.hw.host.control import BUS
from concord.spec.accelerator import accelerator as spec
from concord.spec.accelerator.accelerator import Core, reaches_memory
from concord.spec.accelerator.registers import ADDRESS_BITS
from concord.spec.trainer.config import TrainerConfig

NOTHING: Mapping[str, Member] = MappingProxyType({})


def modules(accelerator: spec.Accelerator) -> dict[Core, str]:
    """Name of the Verilog module of each kind of core, which `hw.core_gates` makes."""
    return {core: f"core{k}" for k, core in enumerate(dict.fromkeys(accelerator.cores))}


def managers(accelerator: spec.Accelerator) -> int:
    """Number of managers: the command processor, a driver for each core, and each core that reaches the memory."""
    return 1 + sum(1 + reaches_memory(core) for core in accelerator.cores)


def id_bits(accelerator: spec.Accelerator) -> int:
    """Bits of an ID at the port of the memory."""
    return 1 + bits_for(managers(accelerator) - 1)


class Accelerator(wiring.Component):
    """An accelerator: `spec/accelerator` says what it does.

    The cores are modules of their own, which `modules` names: equal ones are generated once.

    Args:
        accelerator: The cores and the memory.
        more:        Members of an accelerator that is made in another way.

    Members:
        s_axil_*: AXI4-Lite, the registers of `spec.accelerator.registers`, with addresses of 16 bits.
        m_axi_*: AXI4, the memory.
        irq: Out(1). The interrupt.

    Raises:
        ValueError: hardware is not generated for a core.
    """

    def __init__(self, accelerator: spec.Accelerator, more: Mapping[str, Member] = NOTHING):
        self.accelerator = accelerator
        for core in accelerator.cores:
            if not isinstance(core, TrainerConfig):
                core.require_hardware()
        memory = wires(accelerator.bus, id_bits(accelerator))
        super().__init__({
            **BUS, "s_axil_awaddr": In(ADDRESS_BITS), "s_axil_araddr": In(ADDRESS_BITS), "irq": Out(1),
            **{f"m_axi_{name}": member for name, member in memory.items()}, **more})

    def elaborate(self, platform):
        m = Module()
        bus, count = wires(self.accelerator.bus, 1), len(self.accelerator.cores)
        m.submodules.arbiter = self.arbiter = arbiter = Arbiter(self.accelerator.bus, managers(self.accelerator))
        m.submodules.router = router = WindowRouter(count)
        m.submodules.processor = processor = CommandProcessor(self.accelerator)
        _join(m, self, "s_axil_", router, "s_axil_", LITE)
        _join(m, router, "window0_", processor, "s_axil_", LITE)
        _join(m, arbiter, "m_axi_", self, "m_axi_", {name: member.flip() for name, member in bus.items()})
        _join(m, arbiter, "manager0_", processor, "m_axi_", bus)
        trainers = [k for k, core in enumerate(self.accelerator.cores) if isinstance(core, TrainerConfig)]
        if trainers:
            m.submodules.meeting_place = self.meeting_place = MeetingPlace(trainers)
        m.d.comb += [self.irq.eq(processor.interrupt), processor.memory_busy.eq(arbiter.busy)]
        manager = 1
        for number, core in enumerate(self.accelerator.cores):
            trains = isinstance(core, TrainerConfig)
            m.submodules[f"driver{number}"] = driver = (
                TrainerDriver() if trains else Driver(core, self.accelerator.bus))
            wiring.connect(m, processor.drivers[number], driver.commands)
            _join(m, router, f"window{number + 1}_", driver, "s_axil_", LITE)
            _join(m, arbiter, f"manager{manager}_", driver, "m_axi_", bus)
            met = self._wires(number, driver, f"manager{manager + 1}_")
            if trains:
                watch, commands = driver.watch, driver.commands
                m.d.comb += getattr(self.meeting_place, f"gone{number}").eq(
                    (watch.done & watch.error.any()) | (commands.stop & commands.idle))
            m.submodules[f"core{number}"] = self._core(number, met)
            manager += 1 + reaches_memory(core)
        return m

    def _wires(self, number: int, driver: Driver | TrainerDriver, manager: str) -> dict[str, tuple[Flow, Value]]:
        """What meets the ports of a core between its driver and, if it reaches the memory, a manager of the arbiter."""
        met = {}
        for name, member in core_ports(self.accelerator.cores[number]).items():
            if name.startswith("m_axi_"):
                wire = getattr(self.arbiter, manager + name.removeprefix("m_axi_"))
            elif name in ("meeting", "met"):
                wire = Value.cast(getattr(self.meeting_place, f"{name}{number}"))
            else:
                wire = C(number, member.shape) if name == "number" else driver.of_core(name)
            met[name] = member.flow, wire
        return met

    def _core(self, number: int, met: dict[str, tuple[Flow, Value]]) -> Elaboratable:
        """A core whose ports meet wires."""
        core = self.accelerator.cores[number]
        unused = {"o_load__ready": Signal()} if isinstance(core, TrainerConfig) else {}  # always 1
        return Instance(modules(self.accelerator)[core], i_clk=ClockSignal(), i_rst=ResetSignal(), **unused, **{
            f"{'i' if flow == In else 'o'}_{name}": wire for name, (flow, wire) in met.items()})


def _join(m, upper, above: str, lower, below: str, members: Mapping[str, Member]):
    """Connect wires of two units, whose names begin with `above` and `below`; `members` are those of `lower`."""
    for name, member in members.items():
        outer, inner = getattr(upper, above + name), getattr(lower, below + name)
        m.d.comb += inner.eq(outer) if member.flow == In else outer.eq(inner)
