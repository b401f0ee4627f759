"""Every example of docs/python.md and the notebook run, one after another, on machines that other tests build."""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="networks are quantised with PyTorch")
pytest.importorskip("onnx", reason="networks of PyTorch are exported to ONNX")

import concord
from concord.tests.own_digits import written

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page(tmp_path, monkeypatch, capsys):
    written(tmp_path)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "python.md").read_text(), re.DOTALL)
    assert len(blocks) == 6
    names = {}
    for block in blocks:
        # Block floating point has no machine among those that other tests build.
        quick = re.sub(r'"vision"(?!, arithmetic)', '"tiny"', block)
        quick = quick.replace("samples=20", "samples=2").replace(".onnx", ".safetensors")
        exec(compile(quick, "python.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "<net on tiny, 2 samples: equal to the bit>" in printed
    assert "True 0" in printed
    assert {"perceptron.safetensors", "perceptron.q.safetensors", "trained.safetensors", "firmware.safetensors",
            "verilog"} <= {path.name for path in tmp_path.iterdir()}


def test_a_page_names_every_function():
    """Those with a command of their own may stand beside it, as `concord.NAME`."""
    page, commands = ((DOCS / name).read_text() for name in ("python.md", "commands.md"))
    missing = [name for name in concord.__all__ if f"| `{name}` |" not in page and f"`concord.{name}`" not in commands]
    assert missing == []


def test_the_notebook(tmp_path, monkeypatch):
    pytest.importorskip("sklearn", reason="the notebook takes a data set of scikit-learn")
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((DOCS / "digits.ipynb").read_text())
    names = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "the notebook is kept without outputs"
            exec(compile("".join(cell["source"]), "digits.ipynb", "exec"), names)
    assert names["found"].equal
    assert names["found"].measures["RTL"]["accuracy"] > 0.85
    assert names["trained"].measures["golden"] > 0.85
