"""Every example of the page's section on data is run as it stands there."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.datasets.description import _KEYS, _PREPROCESSING
from concord.datasets.read import read_data
from concord.datasets.samples import Task
from concord.net.model_file import save_model
from concord.nnp.main import app
from concord.spec.machine.config import preset
from typer.testing import CliRunner

pytest.importorskip("sklearn", reason="an example takes a data set of scikit-learn")
PAGE = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
SECTION = PAGE.partition("## Data of your own\n")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"(?:^    .*\n|^\n(?=    ))+", SECTION, re.MULTILINE)
LINES = "".join(BLOCKS).replace("\n    ", "\n").splitlines()
COMMANDS = [line.strip() for line in LINES if line.strip().startswith("nnp ")]
RNG = np.random.default_rng(0)


def descriptions() -> dict[str, str]:
    """The TOML files of the section, by the name in their first line."""
    text = re.sub(r"^    ", "", "".join(BLOCKS), flags=re.MULTILINE)
    parts = re.split(r"^# (\w+\.toml)$", text, flags=re.MULTILINE)[1:]
    return {name: re.sub(r"^nnp .*$", "", body, flags=re.MULTILINE) for name, body in zip(
        parts[::2], parts[1::2], strict=True)}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files that the section names."""
    monkeypatch.chdir(tmp_path)
    for name, text in descriptions().items():
        (tmp_path / name).write_text(text)
    images = RNG.integers(0, 17, (200, 8, 8))
    np.savez("digits.npz", images=images, digit=np.arange(200) % 10)
    for name in "houses.csv", "houses_test.csv", "more_houses.csv":
        rows = ["rooms,area,age,price", *(f"{k % 7},{100 + k},{k % 50},{k / 3:.3f}" for k in range(12))]
        (tmp_path / name).write_text("\n".join(rows))
    np.save("normal.npy", RNG.normal(size=(20, 5)))
    np.save("mixed.npy", RNG.normal(size=(10, 5)))
    np.save("broken.npy", np.arange(10) % 2)
    for name, outputs in ("digits", 10), ("houses", 1), ("pumps", 5):
        data = read_data(f"{name}.toml")
        model = networks.mlp(RNG, preset("tiny"), [data.test.inputs.shape[1], outputs], block=True)
        kept = np.zeros(0, np.uint8)
        save_model(replace(model, name=name, data=data.name, task=data.task, classes=data.classes,
                           description=data.description, fp32_predictions=kept, quantized_predictions=kept),
                   f"{name}.safetensors")
    return tmp_path


def test_commands(folder):
    assert len(COMMANDS) == 6
    for command in COMMANDS:
        words = shlex.split(command)[1:]
        if words[0] == "verify":
            words += ["--machine", "golden", "--preset", "tiny", "-j", "1"]
        result = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
        assert result.exit_code == 0, f"{command}: {result.output}"
        assert "verify" in words or re.search("right|RMSE|AUC", result.stdout.splitlines()[-1]), command


def test_what_the_examples_describe(folder):
    digits, houses, pumps = map(read_data, ("digits.toml", "houses.toml", "pumps.toml"))
    assert (digits.task, digits.shape, len(digits.test), len(digits.calibration)) == (
        Task.CLASSIFICATION, (1, 8, 8), 50, 100)
    assert (houses.task, houses.shape, len(houses.train)) == (Task.REGRESSION, (3,), 12)
    assert (pumps.task, pumps.shape, len(pumps.train), len(pumps.test)) == (Task.ANOMALY, (5,), 20, 10)


def test_every_key_is_in_the_table():
    assert set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in SECTION.splitlines()
                                               if line.startswith("| `")))) >= {*_KEYS, *_PREPROCESSING}
