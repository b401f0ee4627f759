"""The arrows between rooms run one way, and a unit has one name in all of them."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALL = {"spec", "golden", "hw", "sim", "train", "compiler", "nnp"}
MAY_IMPORT = {
    "spec": set(),
    "golden": {"spec"},
    "hw": {"spec"},
    "sim": {"spec", "golden", "hw"},
    "train": {"spec", "golden"},
    "compiler": {"spec", "golden"},
    "nnp": ALL,
}
#: What each room may take from others' packages; the rest is the standard library.
PACKAGES = {
    "spec": set(),
    "golden": {"numpy", "safetensors"},
    "compiler": {"numpy", "onnx"},
}
STANDARD = sys.stdlib_module_names


def imports(path: Path) -> set[str]:
    """Top-level names of everything that a file imports, wherever it does."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_arrows(room):
    for path in (ROOT / room).rglob("*.py"):
        used = imports(path) & ALL
        assert used <= MAY_IMPORT[room] | {room}, f"{path} imports {used}"


@pytest.mark.parametrize("room", PACKAGES)
def test_packages(room):
    for path in (ROOT / room).rglob("*.py"):
        used = imports(path) - STANDARD - ALL
        assert used <= PACKAGES[room], f"{path} imports {used}"


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_init_files_are_empty(room):
    assert not (ROOT / room / "__init__.py").read_text()


#: Units that are computed in numpy and in gates.
SHARED = (
    "accumulator",
    "activation",
    "converter",
    "counters",
    "float16",
    "lazy_update",
    "multifunction",
    "mvm",
    "overflow",
    "quantizer",
    "tile_engine",
)


@pytest.mark.parametrize("unit", SHARED)
def test_units_have_one_name_in_golden_and_hardware(unit):
    assert (ROOT / "golden" / f"{unit}.py").exists()
    assert (ROOT / "hw" / f"{unit}.py").exists()


def test_testbenches_have_the_names_of_units():
    testbenches = {path.stem for path in (ROOT / "sim").glob("*.py") if "\n@cocotb.test" in path.read_text()}
    assert testbenches
    # `serve` is no testbench: it holds the machine that `sim.remote` talks to.
    assert all((ROOT / "hw" / f"{name}.py").exists() for name in testbenches - {"serve"})
