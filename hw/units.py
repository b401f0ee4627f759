"""Every unit of the machine, found in the files of this room."""

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

from amaranth.lib.wiring import Component
from concord.hw.host.counters import counted
from concord.hw.trainer.tensor_engine import AHEAD, MULTIPLIERS
from concord.hw.trainer.trainer_core import READ_PATHS, WRITE_PATHS
from concord.hw.trainer.trainer_registers import INSTRUCTION_ADDRESS
from concord.hw.trainer.wires import ProductJob
from concord.spec.accelerator.accelerator import Accelerator
from concord.spec.isa.instructions import base_bits
from concord.spec.machine.config import Config
from concord.spec.numbers.lazy import LazyFormat
from concord.spec.trainer.config import TrainerConfig

ROOM = Path(__file__).parent

#: Components that no machine holds: they lie between machines, around a unit, or between a machine and its host.
BETWEEN_MACHINES = ("cascade", "message_link", "axi_streams", "board_top", "serial_nnp", "serial_link", "frame_input",
                    "frame_output", "frame_writer", "uart_receiver", "uart_sender", "sdram_controller", "sdram_pads")

#: Units that only some machines hold, by the attribute of the configuration that is neither 0 nor False in these.
OPTIONAL = {
    "count_overflows": ("overflow",),
    "dram_words": ("block_queue", "burst_reader", "burst_writer", "dram_port", "gearbox", "mover", "range_table",
                   "range_walker", "section_cutter", "tile_builder", "tile_unpacker", "transfers"),
    "lazy_update": ("exponent_search", "lazy_update", "reserved_queue", "update_port"),
    "more_functions": ("reducer",),
    "softmax_words": ("exponential", "softmax"),
    "vector_rf": ("column_walker", "dequantizer", "entry_hazards", "entry_reader", "entry_writer", "gather",
                  "pixel_pipeline", "pooling", "vector_rf"),
}

CORES = 4  #: Cores of the accelerator whose units are measured alone.
RESULTS = 16  #: Rows of tiles that wait for their totals in a result sequencer that is measured alone.


def accelerator(config: Config) -> Accelerator:
    """An accelerator of a machine, with 1 GB of memory."""
    return Accelerator(cores=(config,) * CORES, memory_bytes=1 << 30, bus=config.dram_bus or 16)


#: Arguments of units that take less than the configuration, or more.
ARGUMENTS: Mapping[str, Callable[[Config], tuple]] = MappingProxyType({
    **dict.fromkeys(("core_port", "exponential", "loop_stack", "range_walker", "trainer_driver"), lambda _: ()),
    **dict.fromkeys(("adder", "multiplier"), lambda config: (config.mfu_registers,)),
    "activation": lambda config: (config.more_functions, config.mfu_registers),
    "arbiter": lambda config: (config.dram_bus or 16, 1 + CORES + CORES * bool(config.dram_words)),
    "beat_sequencer": lambda config: (config, config.mvmq_words),
    "binary16_rounder": lambda config: (config.sum_bits,),
    "block_queue": lambda config: (8 * config.dram_bus, 512),
    **dict.fromkeys(("accelerator", "command_check", "command_processor", "processor_registers"),
                    lambda config: (accelerator(config),)),
    **dict.fromkeys(("answer_writer", "driver", "message_reader"), lambda config: (config, config.dram_bus or 16)),
    "counters": lambda config: (counted(config),),
    "crc": lambda config: (8 * config.message_bytes,),
    "dequantizer": lambda config: (config.activations, config.mfu_lanes),
    "exponent_search": lambda _: (LazyFormat(),),
    **dict.fromkeys(("first_error", "window_router"), lambda _: (CORES,)),
    "gearbox": lambda config: (16 * config.mfu_lanes, config.lanes * config.weights.code_bits),
    "lazy_update": lambda config: (LazyFormat(), config.mfu_lanes),
    "meeting_place": lambda _: (range(CORES),),
    "memory_mover": lambda config: (config.dram_bus or 16,),
    "mode_table": lambda config: (config.matrix_tiles,),
    "multifunction": lambda config: (config.mfu_lanes, config.more_functions, config.mfu_registers),
    "overflow": lambda config: (config.native_dim, config.sum_bits, config.output_bits),
    "pooling": lambda config: (config.mfu_lanes,),
    "queue": lambda config: (16 * config.mfu_lanes, config.net_in, True),
    "quantizer": lambda config: (config.activations, config.mfu_lanes, config.native_dim),
    "range_table": lambda config: (base_bits(config),),
    "reducer": lambda config: (config.mfu_lanes,),
    "read_ahead": lambda config: (config, 1),
    "reserved_queue": lambda config: (16 * config.mfu_lanes, 16),
    "result_sequencer": lambda config: (config, RESULTS),
    "tensor_quantizer": lambda config: (62, config.mfu_lanes),
})

#: Arguments of units of a trainer; the other ones take none.
TRAINER_ARGUMENTS: Mapping[str, Callable[[TrainerConfig], tuple]] = MappingProxyType({
    "accumulators": lambda config: (config.accumulator_rows, 4, 3),
    "block_product": lambda _: (MULTIPLIERS,),
    "chip_memory": lambda config: (config.words, READ_PATHS, WRITE_PATHS),
    "mantissa_words": lambda _: (8,),
    **dict.fromkeys(("row_adds", "vector_reader"), lambda _: (AHEAD,)),
    **dict.fromkeys(("dispatcher", "instruction_decoder", "program_sequencer", "trainer_registers"),
                    lambda config: (config,)),
    "instruction_buffer": lambda config: (config.instructions,),
    "job_queue": lambda _: (ProductJob,),
    "loops": lambda _: (INSTRUCTION_ADDRESS,),
    "skewed_memory": lambda config: (config.words // 4,),
    "sum_converter": lambda _: (8, 4),
    "trainer_core": lambda config: (config, True),
    "view_table": lambda config: (config.views,),
    "word_source": lambda _: (16,),
})


@cache
def components() -> Mapping[str, type[Component]]:
    """The class of each component, by the name of its file, which no other component has."""
    found = {}
    for path in sorted(ROOM.rglob("*.py")):
        if "Component):\n" in path.read_text():
            module = import_module(".".join(("concord.hw", *path.relative_to(ROOM).with_suffix("").parts)))
            found[path.stem], = (it for it in vars(module).values() if isinstance(it, type)
                                 and issubclass(it, Component) and it.__module__ == module.__name__)
    return MappingProxyType(found)


def in_machines() -> list[str]:
    """Names of the units that machines, or accelerators of them, hold."""
    return sorted(components().keys() - BETWEEN_MACHINES - set(in_trainers()))


def in_trainers() -> list[str]:
    """Names of the units that cores hold which train; no machine holds them."""
    return [name for name, unit in components().items() if unit.__module__.startswith("concord.hw.trainer.")]


def needs(name: str) -> str:
    """The attribute of the configuration that machines with this unit need; empty if all machines hold it."""
    return next((attribute for attribute, names in OPTIONAL.items() if name in names), "")


def holds(config: Config, name: str) -> bool:
    """Whether the machine of a configuration holds a unit."""
    return not needs(name) or bool(getattr(config, needs(name)))


def arguments(name: str, config: Config) -> tuple:
    """Arguments with which the machine of a configuration makes a unit."""
    return ARGUMENTS[name](config) if name in ARGUMENTS else (config,)


def trainer_arguments(name: str, config: TrainerConfig) -> tuple:
    """Arguments with which a trainer makes a unit."""
    return TRAINER_ARGUMENTS[name](config) if name in TRAINER_ARGUMENTS else ()


def component(name: str, config: Config, trainer: TrainerConfig | None = None) -> Component:
    """The unit called `name` as the machine `config` holds it, or as `trainer` does, of the default sizes if None.

    Raises:
        ValueError: machines, or those of this configuration, hold no such unit.
    """
    if name in in_trainers():
        return components()[name](*trainer_arguments(name, trainer or TrainerConfig()))
    if name not in in_machines():
        raise ValueError(f"there is no unit {name!r}: choose one of "
                         f"{', '.join(sorted([*in_machines(), *in_trainers()]))}")
    if not holds(config, name):
        raise ValueError(f"the machine has no {name}, because its {needs(name)} is {getattr(config, needs(name))}: "
                         "choose a preset that has one")
    return components()[name](*arguments(name, config))
