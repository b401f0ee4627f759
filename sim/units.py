"""Every unit with its testbench and the configurations that it runs in."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

from amaranth.lib.wiring import Component
from concord.hw.decode.chain_builder import ChainBuilder
from concord.hw.decode.decoder import Decoder
from concord.hw.decode.instruction_check import InstructionCheck
from concord.hw.decode.instruction_fetch import InstructionFetch
from concord.hw.decode.mode_table import ModeTable
from concord.hw.decode.scalar_registers import ScalarRegisters
from concord.hw.host.control import Control
from concord.hw.host.counters import EventCounters
from concord.hw.host.crc import CRC32
from concord.hw.host.host_read import HostRead
from concord.hw.host.message_input import MessageInput
from concord.hw.host.message_items import MessageItems
from concord.hw.host.message_output import MessageOutput
from concord.hw.lazy.lazy_update import LazyUpdate
from concord.hw.lazy.tensor_quantizer import TensorQuantizer
from concord.hw.lazy.update_port import UpdatePort
from concord.hw.lib.queue import Queue
from concord.hw.lib.read_ahead import ReadAhead
from concord.hw.mfu.activation import Activation
from concord.hw.mfu.adder import FloatAdder
from concord.hw.mfu.mfu_pipeline import MfuPipeline
from concord.hw.mfu.multifunction import MultiFunctionUnit
from concord.hw.mfu.multiplier import FloatMultiplier
from concord.hw.mvm.accumulator import Accumulator
from concord.hw.mvm.beat_sequencer import BeatSequencer
from concord.hw.mvm.bias_rf import BiasRf
from concord.hw.mvm.converter import Converter
from concord.hw.mvm.matrix_loader import MatrixLoader
from concord.hw.mvm.matrix_rf import MatrixRf
from concord.hw.mvm.mvm import MatrixVectorMultiplier
from concord.hw.mvm.normalizer import Normalizer
from concord.hw.mvm.operand_buffer import OperandBuffer
from concord.hw.mvm.operand_rotator import OperandRotator
from concord.hw.mvm.overflow import OverflowCounter
from concord.hw.mvm.quantizer import Quantizer
from concord.hw.mvm.result_sequencer import ResultSequencer
from concord.hw.mvm.row_tiles import RowTiles
from concord.hw.mvm.tile_engine import TileEngine
from concord.hw.nnp import NNP
from concord.hw.schedule.address_generator import AddressGenerator
from concord.hw.schedule.copy import Copy
from concord.hw.schedule.interlock import Interlock
from concord.hw.schedule.issue import Issue
from concord.hw.schedule.operand_fetch import OperandFetch
from concord.hw.schedule.vector_memories import VectorMemories
from concord.hw.schedule.writeback import Writeback
from concord.sim.drivers.axi_stream import AxiStream
from concord.sim.host.counters import WIDTHS
from concord.spec.config import Config, preset
from concord.spec.training import LazyFormat

HERE = Path(__file__).parent
ROOMS = ("sim", "decode", "host", "lazy", "lib", "mfu", "mvm", "schedule")  #: Folders that hold testbenches.
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
        component=lambda config: BeatSequencer(config, 2 * config.vector_words + 3), environment=_timing("space")),
    "bias_rf": Unit(component=BiasRf),
    "tensor_quantizer": Unit(
        component=lambda config: TensorQuantizer(BLOCK_SUMS[config], config.mfu_lanes),
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
    "instruction_fetch": Unit(component=InstructionFetch),
    "address_generator": Unit(component=AddressGenerator),
    "operand_rotator": Unit(component=OperandRotator, configurations=("wide",), environment=_timing("latency")),
    "tile_engine": Unit(component=TileEngine, environment=_timing("latency", "width")),
    "update_port": Unit(component=UpdatePort, configurations=("tiny", "trainer")),
    "vector_memories": Unit(component=VectorMemories),
    "writeback": Unit(component=Writeback),
}


def testbench(name: str) -> str:
    """The module of cocotb tests of the unit called `name`, which lies where the unit lies in hw."""
    path, = (path for path in HERE.rglob(f"{name}.py") if path.parent.name in ROOMS)
    return ".".join(("concord.sim", *path.relative_to(HERE).with_suffix("").parts))


def unit(name: str) -> Unit:
    """The unit called `name`.

    Raises:
        ValueError: there is no such unit.
    """
    if name not in UNITS:
        raise ValueError(f"there is no unit {name!r}: choose of {', '.join(UNITS)}")
    return UNITS[name]
