"""Every unit of the machine: where it lies, how it is made, and what its testbench runs."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType

from amaranth.lib.wiring import Component
from concord.hw.core import Core, counted
from concord.hw.decode.base_registers import BaseRegisters
from concord.hw.decode.chain_builder import ChainBuilder
from concord.hw.decode.decoder import Decoder
from concord.hw.decode.instruction_check import InstructionCheck
from concord.hw.decode.instruction_fetch import InstructionFetch
from concord.hw.decode.loop_stack import LoopStack
from concord.hw.decode.mode_table import ModeTable
from concord.hw.decode.scalar_registers import ScalarRegisters
from concord.hw.host.axi_streams import AxiStreams
from concord.hw.host.control import Control
from concord.hw.host.counters import EventCounters
from concord.hw.host.crc import CRC32
from concord.hw.host.host_read import HostRead
from concord.hw.host.message_input import MessageInput
from concord.hw.host.message_items import MessageItems
from concord.hw.host.message_link import MessageLink
from concord.hw.host.message_output import MessageOutput
from concord.hw.lazy.exponent_search import ExponentSearch
from concord.hw.lazy.lazy_update import LazyUpdate
from concord.hw.lazy.tensor_quantizer import TensorQuantizer
from concord.hw.lazy.update_port import UpdatePort
from concord.hw.lib.queue import Queue
from concord.hw.lib.read_ahead import ReadAhead
from concord.hw.lib.reserved_queue import ReservedQueue
from concord.hw.mfu.activation import Activation
from concord.hw.mfu.adder import FloatAdder
from concord.hw.mfu.dequantizer import Dequantizer
from concord.hw.mfu.exponential import Exponential
from concord.hw.mfu.mfu_pipeline import MfuPipeline
from concord.hw.mfu.multifunction import MultiFunctionUnit
from concord.hw.mfu.multiplier import FloatMultiplier
from concord.hw.mfu.pixel_pipeline import PixelPipeline
from concord.hw.mfu.pooling import Pooling
from concord.hw.mfu.softmax import Softmax
from concord.hw.mvm.accumulator import Accumulator
from concord.hw.mvm.beat_sequencer import BeatSequencer
from concord.hw.mvm.bias_rf import BiasRf
from concord.hw.mvm.binary16_rounder import Binary16Rounder
from concord.hw.mvm.column_walker import ColumnWalker
from concord.hw.mvm.converter import Converter
from concord.hw.mvm.entry_reader import EntryReader
from concord.hw.mvm.entry_writer import EntryWriter
from concord.hw.mvm.matrix_loader import MatrixLoader
from concord.hw.mvm.matrix_rf import MatrixRf
from concord.hw.mvm.mvm import MatrixVectorMultiplier
from concord.hw.mvm.operand_buffer import OperandBuffer
from concord.hw.mvm.operand_rotator import OperandRotator
from concord.hw.mvm.overflow import OverflowCounter
from concord.hw.mvm.quantizer import Quantizer
from concord.hw.mvm.result_sequencer import ResultSequencer
from concord.hw.mvm.row_tiles import RowTiles
from concord.hw.mvm.tile_engine import TileEngine
from concord.hw.mvm.vector_rf import VectorRf
from concord.hw.nnp import NNP
from concord.hw.schedule.address_generator import AddressGenerator
from concord.hw.schedule.copy import Copy
from concord.hw.schedule.entry_hazards import EntryHazards
from concord.hw.schedule.gather import Gather
from concord.hw.schedule.interlock import Interlock
from concord.hw.schedule.issue import Issue
from concord.hw.schedule.operand_fetch import OperandFetch
from concord.hw.schedule.vector_memories import VectorMemories
from concord.hw.schedule.writeback import Writeback
from concord.sim.drivers.axi_stream import AxiStream
from concord.sim.host.counters import WIDTHS
from concord.spec.config import Config, preset
from concord.spec.formats import Format
from concord.spec.training import LazyFormat

CONFIGURATIONS = ("tiny", "serial", "wide")  #: Presets that differ in every parameter.
WITHOUT_ENTRIES = "trainer"  #: A preset without VectorRf.
WITH_SOFTMAX = "tiny_softmax"  #: A preset with a softmax unit.

#: Also a preset whose words are as wide as the widest beats.
MESSAGES = (*CONFIGURATIONS, "vision")

#: Formats of the lazy update by preset: the default one, small widths, a residual of more than one unit.
LAZY_FORMATS = {
    preset("tiny"): LazyFormat(), preset("serial"): LazyFormat(bits=3, residual=5, shift=4, update=5, guard=2),
    preset("wide"): LazyFormat(bits=6, residual=12, shift=8, update=16, guard=4)}

#: Bits of the sums that the tensor quantiser takes: the most, few, and those of 32-bit gradients times 8 bits.
BLOCK_SUMS = {preset("tiny"): 62, preset("serial"): 12, preset("wide"): 48}

#: Formats that the dequantiser reads by preset: the widest, whose numbers are rounded, overflow and underflow; its own.
ENTRY_FORMATS = {preset(name): Format(bits=16) if name == "tiny" else preset(name).activations
                 for name in CONFIGURATIONS}


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """One unit of the machine. Its testbench is the module at the same place in sim.

    Attributes:
        place:          The path of its file in hw, without the suffix: "mvm/quantizer".
        component:      Makes the unit as the machine of a configuration holds it; None if no machine holds the unit.
        needs:          Attribute of the configuration that is neither 0 nor False in machines that hold the unit.
        bench:          Makes the component that the testbench drives; None if `component` makes it.
        configurations: Presets in which the regression runs the testbench; empty if the unit has no testbench.
        tested:         Configurations that the ordinary tests run; None stands for the last one. Only arithmetic units
                        depend on formats and widths. Units that move and order words are exercised most by several
                        engines and the widest beats, which the last configuration has.
        environment:    Makes the environment variables of the testbench, beside CONFIG, from the component.
    """

    place: str
    component: Callable[[Config], Component] | None = None
    needs: str = "native_dim"
    bench: Callable[[Config], Component] | None = None
    configurations: tuple[str, ...] = CONFIGURATIONS
    tested: tuple[str, ...] | None = None
    environment: Callable[[Component], Mapping[str, str]] = lambda _: MappingProxyType({})

    @property
    def name(self) -> str:
        """The last part of the place, which no other unit has."""
        return self.place.rpartition("/")[2]

    @property
    def testbench(self) -> str:
        """The name of the module of cocotb tests."""
        return "concord.sim." + self.place.replace("/", ".")

    def driven(self, config: Config) -> Component:
        """The component that the testbench drives."""
        return (self.bench or self.component)(config)

    def chosen(self, *, every: bool) -> tuple[str, ...]:
        """The configurations of the regression if `every`, otherwise those of the ordinary tests."""
        if every:
            return self.configurations
        return self.configurations[-1:] if self.tested is None else self.tested


def _environment(*names: str) -> Callable[[Component], dict[str, str]]:
    """Make an environment function that passes attributes of the component under their names in capitals."""
    return lambda dut: {name.upper(): str(getattr(dut, name)) for name in names}


def _lazy_environment(dut: LazyUpdate) -> dict[str, str]:
    return {"FORMAT": json.dumps(asdict(dut.fmt))} | _environment("latency", "search", "lanes")(dut)


def _dequantizer_environment(dut: Dequantizer) -> dict[str, str]:
    return {"FORMAT": json.dumps(asdict(dut.fmt))} | _environment("latency", "lanes")(dut)


def _bench_lazy_update(config: Config) -> LazyUpdate:
    return LazyUpdate(LAZY_FORMATS.get(config, LazyFormat()), config.mfu_lanes)


UNITS: Mapping[str, Unit] = MappingProxyType({unit.name: unit for unit in (  #: All units by their names.
    Unit(place="core", component=Core, configurations=()),
    Unit(place="cascade", configurations=()),  # tests/machine/test_cascade.py runs several whole machines
    # tests/host and tests/machine run the whole machine
    Unit(place="nnp", component=NNP, configurations=(*CONFIGURATIONS, WITH_SOFTMAX), tested=()),
    Unit(place="decode/base_registers", component=lambda _: BaseRegisters(), configurations=("tiny",)),
    Unit(place="decode/chain_builder", component=ChainBuilder, configurations=(WITH_SOFTMAX, *CONFIGURATIONS)),
    Unit(place="decode/decoder", component=Decoder, configurations=(WITHOUT_ENTRIES, WITH_SOFTMAX, *CONFIGURATIONS)),
    Unit(place="decode/instruction_check", component=InstructionCheck,
         configurations=(WITHOUT_ENTRIES, WITH_SOFTMAX, *CONFIGURATIONS), tested=(WITH_SOFTMAX, "wide")),
    Unit(place="decode/instruction_fetch", component=InstructionFetch),
    Unit(place="decode/loop_stack", component=lambda _: LoopStack(), configurations=("tiny",)),
    Unit(place="decode/mode_table", component=lambda config: ModeTable(config.matrix_tiles),
         bench=lambda config: ModeTable(3 * config.matrix_tiles + 5), environment=_environment("tiles")),
    Unit(place="decode/scalar_registers", component=ScalarRegisters, environment=_environment("latency"),
         configurations=(WITHOUT_ENTRIES, *CONFIGURATIONS)),
    Unit(place="host/axi_streams", bench=lambda config: AxiStreams(_bench_lazy_update(config)),
         configurations=("tiny", "serial"), tested=("tiny", "serial"),
         environment=lambda dut: _lazy_environment(dut.unit)),
    Unit(place="host/control", component=Control),
    Unit(place="host/counters", component=lambda config: EventCounters(counted(config)),
         bench=lambda _: EventCounters(WIDTHS), configurations=("tiny",)),
    Unit(place="host/crc", component=lambda config: CRC32(8 * config.message_bytes)),
    Unit(place="host/host_read", component=HostRead),
    Unit(place="host/message_input", component=MessageInput,
         configurations=MESSAGES, bench=lambda config: AxiStream(MessageInput(config), "i", "s_axis")),
    Unit(place="host/message_items", component=MessageItems, configurations=MESSAGES),
    Unit(place="host/message_link", configurations=("tiny", "wide"),
         bench=lambda config: AxiStreams(MessageLink(config))),
    Unit(place="host/message_output", component=MessageOutput,
         configurations=MESSAGES, bench=lambda config: AxiStream(MessageOutput(config), "o", "m_axis")),
    Unit(place="lazy/exponent_search", needs="lazy_update",
         component=lambda _: ExponentSearch(LazyFormat()), configurations=()),
    Unit(place="lazy/lazy_update", needs="lazy_update",
         component=lambda config: LazyUpdate(LazyFormat(), config.mfu_lanes),
         bench=_bench_lazy_update, tested=CONFIGURATIONS, environment=_lazy_environment),
    Unit(place="lazy/tensor_quantizer", component=lambda config: TensorQuantizer(62, config.mfu_lanes),
         bench=lambda config: TensorQuantizer(BLOCK_SUMS.get(config, 48), config.mfu_lanes), tested=CONFIGURATIONS,
         environment=_environment("latency", "sum_bits", "lanes")),
    Unit(place="lazy/update_port", needs="lazy_update", component=UpdatePort, configurations=("tiny", "trainer")),
    Unit(place="lib/queue", component=lambda config: Queue(16 * config.mfu_lanes, config.net_in),
         bench=lambda config: Queue(24, config.chain_queue), environment=_environment("depth")),
    Unit(place="lib/read_ahead", component=lambda config: ReadAhead(config, 1),
         bench=lambda config: ReadAhead(config, 3), environment=_environment("DEPTH", "tag_bits")),
    Unit(place="lib/reserved_queue", component=lambda config: ReservedQueue(16 * config.mfu_lanes, config.net_in),
         configurations=()),
    Unit(place="mfu/activation", component=lambda _: Activation(), configurations=("tiny",),
         environment=_environment("latency")),
    Unit(place="mfu/adder", component=lambda _: FloatAdder(), configurations=("tiny",),
         environment=_environment("latency")),
    Unit(place="mfu/dequantizer", needs="vector_rf",
         component=lambda config: Dequantizer(config.activations, config.mfu_lanes),
         bench=lambda config: Dequantizer(ENTRY_FORMATS.get(config, config.activations), config.mfu_lanes),
         tested=CONFIGURATIONS,
         environment=_dequantizer_environment),
    Unit(place="mfu/exponential", needs="softmax_words", component=lambda _: Exponential(),
         configurations=(WITH_SOFTMAX,), environment=_environment("latency")),
    Unit(place="mfu/mfu_pipeline", component=MfuPipeline, configurations=("tiny", "serial"),
         environment=_environment("latency")),
    Unit(place="mfu/multifunction", component=lambda config: MultiFunctionUnit(config.mfu_lanes),
         environment=_environment("latency", "factor_at")),
    Unit(place="mfu/multiplier", component=lambda _: FloatMultiplier(), configurations=("tiny",),
         environment=_environment("latency")),
    Unit(place="mfu/pixel_pipeline", needs="vector_rf",
         component=PixelPipeline, environment=_environment("latency", "DEPTH")),
    Unit(place="mfu/pooling", needs="vector_rf",
         component=lambda config: Pooling(config.mfu_lanes), environment=_environment("lanes")),
    Unit(place="mfu/softmax", needs="softmax_words", component=Softmax, configurations=(WITH_SOFTMAX,)),
    Unit(place="mvm/accumulator", component=Accumulator, tested=CONFIGURATIONS,
         environment=_environment("latency", "width")),
    Unit(place="mvm/beat_sequencer", component=lambda config: BeatSequencer(config, config.mvmq_words),
         bench=lambda config: BeatSequencer(config, 2 * config.vector_words + 3), environment=_environment("space")),
    Unit(place="mvm/bias_rf", component=BiasRf),
    Unit(place="mvm/column_walker", needs="vector_rf", component=ColumnWalker, tested=("serial", "wide")),
    Unit(place="mvm/converter", component=Converter, tested=CONFIGURATIONS, environment=_environment("latency")),
    Unit(place="mvm/entry_reader", needs="vector_rf", component=EntryReader, tested=("serial", "wide")),
    Unit(place="mvm/entry_writer", needs="vector_rf",
         component=EntryWriter, tested=CONFIGURATIONS, environment=_environment("latency")),
    Unit(place="mvm/matrix_loader", component=MatrixLoader, tested=CONFIGURATIONS),
    Unit(place="mvm/matrix_rf", component=MatrixRf),
    Unit(place="mvm/mvm", component=MatrixVectorMultiplier, tested=CONFIGURATIONS),
    Unit(place="mvm/binary16_rounder", component=lambda config: Binary16Rounder(config.sum_bits),
         bench=lambda config: Binary16Rounder(config.sum_bits, range(-32, 46)), tested=CONFIGURATIONS,
         environment=_environment("latency", "width")),
    Unit(place="mvm/operand_buffer", component=OperandBuffer),
    Unit(place="mvm/operand_rotator", component=OperandRotator, configurations=("wide",),  # one engine turns nothing
         environment=_environment("latency")),
    Unit(place="mvm/overflow",
         component=lambda config: OverflowCounter(config.native_dim, config.sum_bits, config.output_bits),
         bench=lambda config: OverflowCounter(config.native_dim, 30, config.product_bits), tested=CONFIGURATIONS,
         environment=_environment("latency", "count", "width", "bits")),
    Unit(place="mvm/quantizer", tested=CONFIGURATIONS,
         component=lambda config: Quantizer(config.activations, config.mfu_lanes, config.native_dim),
         environment=_environment("latency", "short")),
    Unit(place="mvm/result_sequencer", component=lambda config: ResultSequencer(config, config.net_in),
         bench=lambda config: ResultSequencer(config, 4)),
    Unit(place="mvm/row_tiles", component=RowTiles),
    Unit(place="mvm/tile_engine", component=TileEngine, tested=CONFIGURATIONS,
         environment=_environment("latency", "width")),
    Unit(place="mvm/vector_rf", needs="vector_rf", component=VectorRf, tested=("tiny", "wide")),
    Unit(place="schedule/address_generator", component=AddressGenerator),
    Unit(place="schedule/copy", component=Copy, configurations=(WITH_SOFTMAX, *CONFIGURATIONS)),
    Unit(place="schedule/entry_hazards", needs="vector_rf", component=EntryHazards, configurations=()),
    Unit(place="schedule/gather", needs="vector_rf", component=Gather),
    Unit(place="schedule/interlock", component=Interlock),
    Unit(place="schedule/issue", environment=_environment("latency", "due"),
         component=lambda config: Issue(config, latency=MfuPipeline.latency, due=MfuPipeline.due)),
    Unit(place="schedule/operand_fetch", component=OperandFetch),
    Unit(place="schedule/vector_memories", component=VectorMemories),
    Unit(place="schedule/writeback", component=Writeback, configurations=(WITH_SOFTMAX, *CONFIGURATIONS)),
)})


def unit(name: str) -> Unit:
    """The unit called `name`.

    Raises:
        ValueError: there is no such unit.
    """
    if name not in UNITS:
        raise ValueError(f"there is no unit {name!r}: choose one of {', '.join(sorted(UNITS))}")
    return UNITS[name]


def component(name: str, config: Config) -> Component:
    """The unit called `name` as the machine `config` holds it.

    Raises:
        ValueError: machines, or those of this configuration, hold no such unit.
    """
    if name not in in_machines():
        raise ValueError(f"there is no unit {name!r}: choose one of {', '.join(in_machines())}")
    made = UNITS[name]
    if not getattr(config, made.needs):
        raise ValueError(f"the machine has no {name}, because its {made.needs} is {getattr(config, made.needs)}: "
                         "choose a preset that has one")
    return made.component(config)


def in_machines() -> list[str]:
    """Names of the units that machines hold."""
    return sorted(name for name, unit in UNITS.items() if unit.component)
