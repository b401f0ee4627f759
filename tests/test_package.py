"""The package has one name and a version, and does not collide with the user's modules."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

import concord

ROOT = Path(__file__).parents[1]
ROOMS = ("spec", "golden", "model", "hw", "sim", "train", "compiler", "twin", "nnp")


def test_the_version_is_that_of_the_project():
    assert f'version = "{concord.__version__}"' in (ROOT / "pyproject.toml").read_text()


def test_a_package_is_pinned_to_one_version():
    record = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = record["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values(), *record["dependency-groups"].values()]
    pins = {}
    for text in (text for entries in lists for text in entries if isinstance(text, str)):
        requirement = Requirement(text)
        assert pins.setdefault(requirement.name.lower(), requirement.specifier) == requirement.specifier, text


def test_a_users_own_modules_are_left_alone(tmp_path):
    for room in ROOMS:
        (tmp_path / f"{room}.py").write_text(f"raise SystemExit('the user\\'s own {room}.py was executed')\n")
    code = "import concord.nnp.main, concord.sim.units, concord.compiler.network, concord.train.ptq.search"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
