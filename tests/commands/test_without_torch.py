"""`nnp quantize`, `nnp verify` and `concord.quantize` where PyTorch is not installed."""

import subprocess
import sys

import numpy as np
import pytest
from concord.net import graph_file
from concord.net.model_file import load_model
from concord.tests import float_networks

#: Refuses the import of PyTorch as if it were not installed, then runs a command, or a line of Python.
WITHOUT = """
import sys
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name="torch")
sys.meta_path.insert(0, Refused())
if sys.argv[1] == "-c":
    exec(sys.argv[2])
else:
    from concord.nnp.main import main
    main()
"""
NETWORKS = {"perceptron": (float_networks.perceptron, (12,)), "residual": (float_networks.residual, (1, 8, 8)),
            "lstm": (float_networks.sequences, (6, 5))}


def run(folder, *words) -> str:
    """stdout of a command in a process of its own."""
    made = subprocess.run([sys.executable, "-c", WITHOUT, *map(str, words)], cwd=folder, text=True,
                          capture_output=True, env={"PYTHONPATH": ":".join(sys.path), "PATH": "", "COLUMNS": "200"})
    assert made.returncode == 0, made.stdout + made.stderr
    return made.stdout


@pytest.fixture(params=NETWORKS)
def folder(request, tmp_path):
    """A folder with a network, net.safetensors, and its data, d.npz."""
    make, shape = NETWORKS[request.param]
    graph_file.save(make(), tmp_path / "net.safetensors")
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", x_train=rng.normal(size=(30, *shape)), y_train=np.arange(30) % 3,
             x_test=rng.normal(size=(8, *shape)), y_test=np.arange(8) % 3)
    return tmp_path


@pytest.mark.parametrize("arithmetic", ["integer", "bfp"])
def test_networks_are_quantized(folder, arithmetic):
    text = run(folder, "quantize", "net.safetensors", "--for", "speech", "--data", "d.npz", "--arithmetic", arithmetic,
               "-o", "m.safetensors")
    assert "PTQ 1/" in text
    assert "m.safetensors: accuracy FP32 " in text
    assert load_model(folder / "m.safetensors").provenance.golden_accuracy is not None


def test_networks_are_verified_on_golden(folder):
    text = run(folder, "verify", "net.safetensors", "--data", "d.npz", "--machine", "golden", "--samples", 4,
               "--report", "report")
    assert "quantised model: report/net.safetensors" in text


def test_the_python_api_quantizes(folder):
    text = run(folder, "-c", "import concord; print(concord.quantize('net.safetensors', 'd.npz', preset='speech'))")
    assert "golden" in text
    assert "torch" not in text
