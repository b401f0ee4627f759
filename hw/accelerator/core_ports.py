"""The wires of a core's buses, of a machine alone and of what is a core of an accelerator."""

from amaranth.lib import stream
from amaranth.lib.wiring import In, Member, Out
from concord.hw.dram.axi import bus, wires
from concord.hw.host.control import BUS
from concord.hw.host.watch import Watch
from concord.hw.trainer import trainer_registers
from concord.hw.trainer.instruction_buffer import ProgramWord
from concord.hw.trainer.program_sequencer import Meeting, Met
from concord.spec.accelerator.accelerator import Core
from concord.spec.machine.config import Config
from concord.spec.trainer.config import LANES, TrainerConfig

NUMBER = 3  #: Bits of the number of a core that trains.
#: The wires of a core that trains together with others, as `hw.trainer.trainer_core.TrainerCore` describes them.
TRAINER = {
    **BUS, **{f"m_axi_{name}": member for name, member in wires(LANES, 1).items()},
    "load": In(stream.Signature(ProgramWord, always_ready=True)), "first": In(32), "second": In(32),
    "number": In(NUMBER), "watch": Out(trainer_registers.Watch), "meeting": Out(Meeting), "met": In(Met)}


def ports(config: Config) -> dict[str, Member]:
    """The wires of a machine's buses, from its point of view."""
    bits, outside = 8 * config.message_bytes, bus(config) if config.dram_words else {}
    return {"s_axis_tdata": In(bits), "s_axis_tvalid": In(1), "s_axis_tready": Out(1), "s_axis_tlast": In(1),
            "m_axis_tdata": Out(bits), "m_axis_tvalid": Out(1), "m_axis_tready": In(1), "m_axis_tlast": Out(1), **BUS,
            **outside}


def core_ports(core: Core) -> dict[str, Member]:
    """The ports of the Verilog module of a core: `watch` is what its driver sees besides its buses."""
    if isinstance(core, TrainerConfig):
        flat = {"load__payload": In(ProgramWord.size), "load__valid": In(1)}
        return {name: member for name, member in TRAINER.items() if name != "load"} | flat
    return {**ports(core), "watch": Out(Watch)}
