"""Every unit with its testbench and the configurations that it runs in."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType

from amaranth.lib.wiring import Component

from hw.accumulator import Accumulator
from hw.activation import Activation
from hw.adder import FloatAdder
from hw.beat_sequencer import BeatSequencer
from hw.bias_rf import BiasRf
from hw.block_quantizer import BlockQuantizer
from hw.chain_builder import ChainBuilder
from hw.control import Control
from hw.converter import Converter
from hw.copy import Copy
from hw.counters import EventCounters
from hw.crc import CRC32
from hw.decoder import Decoder
from hw.host_read import HostRead
from hw.instruction_check import InstructionCheck
from hw.interlock import Interlock
from hw.issue import Issue
from hw.lazy_update import LazyUpdate
from hw.matrix_loader import MatrixLoader
from hw.matrix_rf import MatrixRf
from hw.message_input import MessageInput
from hw.message_items import MessageItems
from hw.message_output import MessageOutput
from hw.mfu_pipeline import MfuPipeline
from hw.mode_table import ModeTable
from hw.multifunction import MultiFunctionUnit
from hw.multiplier import FloatMultiplier
from hw.mvm import MatrixVectorMultiplier
from hw.nnp import NNP
from hw.normalizer import Normalizer
from hw.operand_buffer import OperandBuffer
from hw.operand_fetch import OperandFetch
from hw.overflow import OverflowCounter
from hw.quantizer import Quantizer
from hw.queue import Queue
from hw.read_ahead import ReadAhead
from hw.result_sequencer import ResultSequencer
from hw.row_tiles import RowTiles
from hw.scalar_registers import ScalarRegisters
from hw.sequencer import Sequencer
from hw.source import Source
from hw.steering import Steering
from hw.tile_engine import TileEngine
from hw.trainer import Trainer
from hw.vector_memories import VectorMemories
from hw.writeback import Writeback
from sim.axi_stream import AxiStream
from sim.counters import WIDTHS
from spec.config import Config, preset
from spec.training import LazyFormat

CONFIGURATIONS = ("tiny", "serial", "wide")  #: Presets that differ in every parameter.

#: Widths of the lazy update, which presets do not have: the real ones, small ones, a residual of more than one unit.
LAZY_FORMATS = {
    preset("tiny"): LazyFormat(), preset("serial"): LazyFormat(bits=3, residual=5, shift=4, update=5, guard=2),
    preset("wide"): LazyFormat(bits=6, residual=12, shift=8, update=16, guard=4)}

#: Bits of the sums of training: the widest, those of 32-bit gradients by 8 bits, few.
BLOCK_SUMS = {preset("tiny"): 62, preset("serial"): 12, preset("wide"): 48}


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """One unit under test; its testbench is the module of its name in sim.

    Attributes:
        component:      The unit of a configuration.
        configurations: Presets to run.
        environment:    What the testbench must know of the component, beside CONFIG.
    """

    component: Callable[[Config], Component]
    configurations: tuple[str, ...] = CONFIGURATIONS
    environment: Callable[[Component], Mapping[str, str]] = lambda _: MappingProxyType({})


def _timing(*names: str) -> Callable[[Component], dict[str, str]]:
    """The attributes called `names` of a component, under those names in capitals."""
    return lambda dut: {name.upper(): str(getattr(dut, name)) for name in names}


UNITS = {
    "accumulator": Unit(component=Accumulator, environment=_timing("latency", "width")),
    "activation": Unit(component=lambda _: Activation(), configurations=("tiny",), environment=_timing("latency")),
    "adder": Unit(component=lambda _: FloatAdder(), configurations=("tiny",), environment=_timing("latency")),
    "beat_sequencer": Unit(
        component=lambda config: BeatSequencer(config, 2 * config.words + 3), environment=_timing("space")),
    "bias_rf": Unit(component=BiasRf),
    "block_quantizer": Unit(
        component=lambda config: BlockQuantizer(BLOCK_SUMS[config], config.mfu_lanes),
        environment=_timing("latency", "sum_bits", "lanes")),
    "chain_builder": Unit(component=ChainBuilder),
    "control": Unit(component=Control),
    "converter": Unit(component=Converter, environment=_timing("latency")),
    "copy": Unit(component=Copy),
    "counters": Unit(component=lambda _: EventCounters(WIDTHS), configurations=("tiny",)),
    "crc": Unit(component=lambda _: CRC32(), configurations=("tiny",)),
    "decoder": Unit(component=Decoder),
    "host_read": Unit(component=HostRead),
    "instruction_check": Unit(component=InstructionCheck),
    "interlock": Unit(component=Interlock),
    "issue": Unit(
        component=lambda config: Issue(config, latency=MfuPipeline.latency, due=MfuPipeline.due),
        environment=_timing("latency", "due")),
    "lazy_update": Unit(
        component=lambda config: LazyUpdate(LAZY_FORMATS[config], config.mfu_lanes),
        environment=lambda dut: {"FORMAT": json.dumps(asdict(dut.fmt))} | _timing("latency", "search", "lanes")(dut)),
    "matrix_loader": Unit(component=MatrixLoader),
    "matrix_rf": Unit(component=MatrixRf),
    "message_input": Unit(component=lambda config: AxiStream(MessageInput(config), "i", "s_axis")),
    "message_items": Unit(component=MessageItems),
    "message_output": Unit(component=lambda config: AxiStream(MessageOutput(config), "o", "m_axis")),
    "mfu_pipeline": Unit(
        component=MfuPipeline, configurations=("tiny", "serial"), environment=_timing("latency")),
    "mode_table": Unit(
        component=lambda config: ModeTable(3 * config.matrix_tiles + 5), environment=_timing("tiles")),
    "multifunction": Unit(
        component=lambda config: MultiFunctionUnit(config.mfu_lanes), environment=_timing("latency", "factor_at")),
    "multiplier": Unit(component=lambda _: FloatMultiplier(), configurations=("tiny",), environment=_timing("latency")),
    "mvm": Unit(component=MatrixVectorMultiplier),
    "nnp": Unit(component=NNP),
    "normalizer": Unit(
        component=lambda config: Normalizer(config.sum_bits, range(-32, 46)), environment=_timing("latency", "width")),
    "operand_buffer": Unit(component=OperandBuffer),
    "operand_fetch": Unit(component=OperandFetch),
    "overflow": Unit(
        component=lambda config: OverflowCounter(config.native_dim, 30, config.product_bits),
        environment=_timing("latency", "count", "width", "bits")),
    "quantizer": Unit(
        component=lambda config: Quantizer(config.activations, config.mfu_lanes, config.native_dim),
        environment=_timing("latency")),
    "queue": Unit(component=lambda config: Queue(24, config.chain_queue), environment=_timing("depth")),
    "read_ahead": Unit(component=lambda config: ReadAhead(config, 3), environment=_timing("DEPTH", "tag_bits")),
    "result_sequencer": Unit(component=lambda config: ResultSequencer(config, 4)),
    "row_tiles": Unit(component=RowTiles),
    # One engine has nothing to turn.
    "scalar_registers": Unit(component=ScalarRegisters),
    "sequencer": Unit(component=Sequencer),
    "source": Unit(component=Source),
    "steering": Unit(component=Steering, configurations=("wide",), environment=_timing("latency")),
    "tile_engine": Unit(component=TileEngine, environment=_timing("latency", "width")),
    "trainer": Unit(component=Trainer, configurations=("tiny", "trainer")),
    "vector_memories": Unit(component=VectorMemories),
    "writeback": Unit(component=Writeback),
}


def unit(name: str) -> Unit:
    """The unit called `name`.

    Raises:
        ValueError: there is no such unit.
    """
    if name not in UNITS:
        raise ValueError(f"there is no unit {name!r}: choose of {', '.join(UNITS)}")
    return UNITS[name]
