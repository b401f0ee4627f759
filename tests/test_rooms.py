"""Imports between rooms and between sub-rooms run one way, and a unit has the same path in all rooms."""

import ast
import importlib.util
import inspect
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest
from concord.hw.units import (
    ARGUMENTS,
    BETWEEN_MACHINES,
    OPTIONAL,
    TRAINER_ARGUMENTS,
    arguments,
    components,
    in_machines,
    in_trainers,
    trainer_arguments,
)
from concord.sim.units import TESTBENCHES
from concord.spec.machine.config import PRESETS, preset
from concord.spec.trainer.config import TrainerConfig

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"


def table(pattern: str) -> dict[str, set[str]]:
    """Rows of the architecture page whose first column matches `pattern`: its name, and names in the last column."""
    rows = re.findall(rf"^\| `{pattern}/` \| [^|]+ \|([^|]*)\|$", PAGE.read_text(), re.MULTILINE)
    found = {"/".join(names): set(re.findall(r"`(\w+)`", last)) for *names, last in rows}
    assert len(found) == len(rows), f"{PAGE} has a row twice"
    return found


#: For each room, the rooms that it may import.
MAY_IMPORT = table(r"(\w+)")
#: For each sub-room, by the folder around it, the sub-rooms of the same folder that it may import. Files beside them
#: may import all.
SUB_ROOMS = {}
for _path, _used in (table(r"(\w+)/(\w+)") | table(r"(\w+)/(\w+)/(\w+)")).items():
    SUB_ROOMS.setdefault(_path.rpartition("/")[0], {})[_path.rpartition("/")[2]] = _used
#: Third-party packages that each room may import.
PACKAGES = {
    "spec": set(),
    "golden": {"numpy"},
    "lib": {"numpy", "safetensors", "rich", "distributed"},
    "firmware": {"numpy"},
    "datasets": {"numpy", "PIL", "safetensors", "tomli_w"},
    "net": {"numpy"},
    "compiler": {"numpy", "onnx"},
    "twin": {"numpy", "safetensors", "torch", "tensorflow", "onnx", "onnxruntime"},
    "frontends": {"numpy", "onnx", "onnxruntime", "google", "qonnx", "torch"},
}
STANDARD = sys.stdlib_module_names


def test_the_page_has_the_tables():
    assert MAY_IMPORT.keys() == {path.parent.name for path in ROOT.glob("*/__init__.py")} - {
        "concord", "benchmarks", "campaigns"}
    assert SUB_ROOMS.keys() >= {"spec", "golden", "hw", "sim", "train", "nnp"}


def imports(path: Path) -> set[str]:
    """Full names of everything that a file imports, anywhere in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("room", [
    "nnp", "verification", "workflows", "handover", "machines", "twin", "frontends", "compiler", "net", "firmware",
    "golden"])
def test_what_functions_import_is_there(room):
    """Imports at the top of a file fail wherever it is used; those inside functions fail only when they are called."""
    for path in (ROOT / room).rglob("*.py"):
        for name in sorted(name for name in imports(path) if name.startswith("concord.")):
            module, _, member = name.rpartition(".")
            assert importlib.util.find_spec(name) if _is_package(module) else _has(module, member), (
                f"{path} imports {name}, which is not there")


def _has(module: str, member: str) -> bool:
    """Whether a module has a member; one that needs a package that is not installed is read, not imported."""
    try:
        return member == "*" or hasattr(import_module(module), member)
    except ModuleNotFoundError as error:
        if error.name.startswith("concord"):
            raise
    body = ast.parse(Path(importlib.util.find_spec(module).origin).read_text()).body
    names = {part.id for node in body for part in ast.walk(node) if isinstance(part, ast.Name)
             and isinstance(part.ctx, ast.Store)}
    return member in names | {getattr(node, "name", None) for node in body}


def _is_package(name: str) -> bool:
    return importlib.util.find_spec(name).submodule_search_locations is not None


#: Public classes of one name in several rooms, by the reason.
SAME_NAMES = {
    "one thing in several rooms": {"Cascade", "Driver", "EntryWriter", "Machine", "MatrixRf", "TrainerDriver",
                                   "VectorRf"},
    "a unit of hardware, and what it computes or holds": {
        "Accelerator", "Activation", "Control", "Field", "Pooling", "Softmax", "TrainerCore"},
    "layers on training tensors, named as layers are": {
        "AveragePool", "Conv", "Dense", "MaxPool", "Parameters", "Recurrent", "Relu", "Residual"},
    "a name of the Python interface": {"Model"},
    "a name in scripts of twins": {"Curve"},
    "what an SDRAM chip takes, and what an accelerator takes": {"Command"},
}


def test_names_of_classes_are_found_once():
    """Whoever searches for a class finds one, but where there is a reason."""
    rooms: dict[str, set[str]] = {}
    for room in (*MAY_IMPORT.keys() - {"tests"}, "concord", "benchmarks", "campaigns"):
        pattern = "*.py" if room == "concord" else "**/*.py"
        for path in (ROOT / room).glob(pattern):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    rooms.setdefault(node.name, set()).add(room)
    assert {name for name, found in rooms.items() if len(found) > 1} == set().union(*SAME_NAMES.values())


def rooms_used(path: Path) -> set[str]:
    """Rooms that a file imports from."""
    return {name.split(".")[1] for name in imports(path) if name.startswith("concord.")} & MAY_IMPORT.keys()


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_arrows_between_rooms(room):
    for path in (ROOT / room).rglob("*.py"):
        used = rooms_used(path)
        assert used <= MAY_IMPORT[room] | {room}, f"{path} imports {used}"


@pytest.mark.parametrize("room", SUB_ROOMS)
def test_every_folder_is_a_sub_room_with_its_arrows(room):
    folders = {path.parent.name for path in (ROOT / room).glob("*/*.py")}
    assert folders == SUB_ROOMS[room].keys()


def test_no_folder_is_deeper_than_the_tables():
    deep = {str(path.parents[1].relative_to(ROOT)) for room in MAY_IMPORT for path in (ROOT / room).glob("*/*/*.py")}
    assert deep == {path for path in SUB_ROOMS if "/" in path}
    assert not [path for room in MAY_IMPORT for path in (ROOT / room).glob("*/*/*/*.py")]


@pytest.mark.parametrize(("room", "sub_room"), [(room, name) for room, names in SUB_ROOMS.items() for name in names])
def test_arrows_between_sub_rooms(room, sub_room):
    allowed, inside = SUB_ROOMS[room][sub_room] | {sub_room}, f"concord.{room}.".replace("/", ".")
    for path in (ROOT / room / sub_room).rglob("*.py"):
        used = {name.removeprefix(inside).split(".")[0] for name in imports(path) if name.startswith(inside)}
        assert used <= allowed, f"{path} imports {used - allowed} of {room}"


def test_arrows_of_sub_rooms_make_no_circle():
    for names in SUB_ROOMS.values():
        left = dict(names)
        while left:
            ends = [name for name, uses in left.items() if not uses & left.keys() - {name}]
            assert ends, f"{', '.join(left)} import each other in a circle"
            for name in ends:
                del left[name]


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_rooms_are_imported_under_one_package(room):
    for path in (ROOT / room).rglob("*.py"):
        bare = {name.partition(".")[0] for name in imports(path)} & MAY_IMPORT.keys()
        assert not bare, f"{path} imports {bare}, which may be somebody else's: import concord.{min(bare)}"


@pytest.mark.parametrize("room", PACKAGES)
def test_packages(room):
    for path in (ROOT / room).rglob("*.py"):
        used = {name.partition(".")[0] for name in imports(path)} - STANDARD - {"concord"}
        assert used <= PACKAGES[room], f"{path} imports {used}"


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_init_files_are_empty(room):
    assert not any(path.read_text() for path in (ROOT / room).rglob("__init__.py"))


#: Units that exist in golden and in hardware.
SHARED = (
    "host/counters",
    "lazy/lazy_update",
    "lib/float16",
    "mfu/activation",
    "mfu/multifunction",
    "mvm/accumulator",
    "mvm/converter",
    "mvm/mvm",
    "mvm/overflow",
    "mvm/quantizer",
    "mvm/tile_engine",
)


@pytest.mark.parametrize("unit", SHARED)
def test_units_have_one_path_in_golden_and_hardware(unit):
    assert (ROOT / "golden" / f"{unit}.py").exists()
    assert (ROOT / "hw" / f"{unit}.py").exists()


def holding(room: str, mark: str) -> set[str]:
    """Paths, such as "mvm/quantizer", of the files of a room that contain the text `mark`."""
    return {str(path.relative_to(ROOT / room).with_suffix("")) for path in (ROOT / room).rglob("*.py")
            if mark in path.read_text()}


def test_the_registry_has_every_unit_of_hardware():
    """One file for each unit; names are those of the files, which no two units share."""
    paths = holding("hw", "(wiring.Component)") | holding("hw", "(Component)")
    assert {it.__module__ for it in components().values()} == {f"concord.hw.{path.replace('/', '.')}"
                                                               for path in paths}
    assert len(components()) == len(paths)
    named = {*ARGUMENTS, *TRAINER_ARGUMENTS, *BETWEEN_MACHINES}
    named |= {name for names in OPTIONAL.values() for name in names}
    assert named <= components().keys()


@pytest.mark.parametrize("name", in_machines())
def test_every_unit_takes_what_a_machine_gives_it(name):
    inspect.signature(components()[name]).bind(*arguments(name, preset("tiny")))


@pytest.mark.parametrize("name", in_trainers())
def test_every_unit_takes_what_a_trainer_gives_it(name):
    inspect.signature(components()[name]).bind(*trainer_arguments(name, TrainerConfig()))


def test_every_testbench_has_its_unit():
    assert {bench.path for bench in TESTBENCHES.values()} == holding("sim", "\n@cocotb.test") - {
        "machines/cocotb_server"}  # it answers another process, and tests nothing
    without = components().keys() - TESTBENCHES.keys()
    assert TESTBENCHES.keys() <= components().keys()
    assert without == {  # parts of tested ones
        "core", "cascade", "exponent_search", "reserved_queue", "entry_hazards", "reducer",
        "answer_writer", "core_port", "message_reader",  # parts of driver
            "meeting_place", "trainer_driver",  # tests/machine/test_trainers.py runs whole lists
        # the serial line, which tests/host/test_serial.py drives bit by bit, and the top of bitstreams around it
        "board_top", "serial_nnp", "serial_link", "frame_input", "frame_output", "frame_writer", "uart_receiver",
        "uart_sender",
        "sdram_pads",  # a part of sdram_controller
        "first_error", "processor_registers",  # parts of command_processor
        "parameter_gather", "parameter_words", "update_lanes", "update_summary",  # parts of update_engine
        # parts of pooling_engine
        "pooling_lanes", "pooling_reads", "pooling_sums", "pooling_windows", "pooling_writes",
        # parts of load_engine, store_engine and move_engine
        "range_joiner", "server_port", "window_gatherer", "window_walker", "word_sink", "word_source", "word_walker",
        "bias_lanes", "block_loader", "block_product", "drain", "mantissa_words", "row_adds", "tap_walker",
        "vector_reader",  # parts of tensor_engine
        # parts of program_sequencer, and the core, whose programs the campaign `trainer_programs` compares
        "bases", "dispatcher", "exponent_table", "extent_finder", "hazards", "instruction_buffer",
        "instruction_decoder", "job_queue", "loops", "measuring", "operand_rules", "resolver", "trainer_core",
        "trainer_registers", "view_table",
        "skewed_memory"}  # a part of chip_memory


@pytest.mark.parametrize("name", TESTBENCHES)
def test_declarations_of_testbenches(name):
    bench = TESTBENCHES[name]
    assert set(bench.tested) <= set(bench.configurations) <= PRESETS.keys()
