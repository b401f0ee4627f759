"""The functions of `import concord`: the same bits as the command line, typed objects, sentences as errors."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import concord
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="networks are quantised with PyTorch")

from concord.tests.own_digits import arrays, perceptron, written

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return written(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def data(files):
    return dict(np.load(files[1]))


@pytest.fixture(scope="module")
def network(files):
    return concord.load(files[0])


@pytest.fixture(scope="module")
def model(network, data):
    return concord.quantize(network, data, preset="tiny")


def python(code: str, folder: Path) -> subprocess.CompletedProcess:
    """Run a script of a user."""
    (folder / "script.py").write_text(code)
    return subprocess.run([sys.executable, "script.py"], cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)},
                          capture_output=True, text=True, check=False)


def test_the_import_takes_no_other_packages(tmp_path):
    done = python("import sys, concord; print({'numpy', 'torch', 'rich', 'typer', 'onnx'} & sys.modules.keys())",
                  tmp_path)
    assert done.stdout.strip() == "set()", done.stderr


def test_the_package_names_its_functions():
    assert set(concord.FUNCTIONS) == set(concord.__all__) <= set(dir(concord))
    for name in concord.__all__:
        function = getattr(concord, name)
        assert callable(function)
        assert "Raises:" in inspect.getdoc(function)
        assert inspect.signature(function).return_annotation is not inspect.Signature.empty
    with pytest.raises(AttributeError, match="its functions are load"):
        concord.__getattr__("quantise")


def test_the_room_of_training_is_still_a_package():
    import concord.net.quantize.recipe as methods
    from concord.net.quantize.recipe import Recipe

    assert methods.Recipe is Recipe


def test_a_network_runs_in_float64(network, data):
    found = concord.run(network, data["x_test"])
    np.testing.assert_array_equal(found, perceptron().run(data["x_test"]))
    assert concord.run(network, data).measures["accuracy"] == 1


def test_a_model_a_program_and_the_hardware_give_the_same_bits(model, data, tmp_path):
    golden, program = concord.run(model, data["x_test"][:4]), concord.compile(model, preset="tiny")
    for machine in "golden", "library":
        found = concord.run(program, data["x_test"][:4], machine=machine)
        np.testing.assert_array_equal(found.patterns, golden.patterns)
    program.save(tmp_path / "firmware.safetensors")
    again = concord.load(tmp_path / "firmware.safetensors")
    assert again.machine == "tiny"
    np.testing.assert_array_equal(concord.run(again, data["x_test"][:4]), golden)


def test_verification_finds_equal_bits_and_keeps_the_model(model, data, tmp_path):
    found = concord.verify(model, data, preset="tiny", samples=2, report=tmp_path, jobs=1)
    assert found.equal
    assert found.bits == 0 < found.cycles
    assert found.measures.keys() == {"FP32", "quantised", "golden", "RTL"}
    assert all(path.exists() for path in found.files)
    assert concord.load(tmp_path / "net.safetensors").measures == model.measures


def test_a_script_needs_no_guard_against_its_own_processes(files, tmp_path):
    code = (f"import concord\nprint('began')\n"
            f"print(concord.verify({files[0]!r}, {files[1]!r}, samples=2, machine='golden', jobs=1))")
    done = python(code, tmp_path)
    assert done.stdout.splitlines() == ["began", "<net on vision, 2 samples: equal to the bit>"], done.stderr
    assert (tmp_path / "build/report/verify.html").exists()


def test_training_goes_on_from_the_weights(network, data, tmp_path):
    trained = concord.finetune(network, data, preset="tiny", epochs=(1, 0), out=tmp_path / "t.safetensors")
    assert trained.path == tmp_path / "t.safetensors"
    assert trained.measures["golden"] > 0.5
    assert "1 epochs of QAT" in concord.load(trained.path).quantized.provenance.method


def test_networks_of_pytorch_are_exported(data):
    module = torch.nn.Sequential(torch.nn.Linear(64, 4), torch.nn.Tanh())
    network = concord.load(module, torch.zeros(1, 64), name="my net")
    assert network.floating.name == "my_net"
    with torch.no_grad():
        wanted = module(torch.from_numpy(data["x_test"])).numpy()
    np.testing.assert_allclose(concord.run(network, data["x_test"]), wanted, atol=1e-5)
    assert module.training


class Fails(torch.nn.Module):
    """A network that refuses its input without a word."""

    def forward(self, x):
        raise AssertionError


class Ends(torch.nn.Module):
    """A network that runs once, so that it cannot be exported."""

    runs = 0

    def forward(self, x):
        self.runs += 1
        if self.runs > 1:
            raise RuntimeError("only once")
        return x


class Spectrum(torch.nn.Module):
    """A network that PyTorch's first exporter cannot trace."""

    def forward(self, x):
        return torch.fft.rfft(x).abs()


def test_an_export_says_nothing_of_its_attempts(capfd):
    with pytest.raises(ValueError, match="DFT"):
        concord.load(Spectrum(), torch.zeros(1, 8))
    assert capfd.readouterr() == ("", "")


class Last(torch.nn.Module):
    """A recurrent network whose last time step is its answer."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.answer = layer(8, 6, batch_first=True), torch.nn.Linear(6, 10)

    def forward(self, x):
        return self.answer(self.layer(x)[0][:, -1])


@pytest.mark.parametrize("layer", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_networks_of_pytorch(layer):
    module, rows = Last(layer).eval(), arrays((8, 8))
    network = concord.load(module, torch.zeros(1, 8, 8))
    with torch.no_grad():
        wanted = module(torch.from_numpy(rows["x_test"])).numpy()
    np.testing.assert_allclose(concord.run(network, rows["x_test"]), wanted, atol=1e-5)
    made = concord.quantize(network, rows, preset="vision")
    assert concord.run(made, rows).numbers.shape == (20, 10)


def test_every_result_is_shown_as_html_and_as_text(network, model, data):
    program = concord.compile(model, preset="tiny")
    shown = (network, "relu"), (model, "dense, integer"), (program, "MatrixRf"), (concord.run(model, data), "accuracy")
    for result, words in shown:
        assert words in result._repr_html_()
        assert repr(result).startswith("<")
        assert "\n" not in repr(result)


def test_names_of_a_file_are_no_markup(data):
    from concord.objects import Network
    from concord.tests.float_networks import Chain

    odd = Network(floating=Chain((4,)).dense("[/bold]<script>", 2, 4).network("[red]net"))
    assert "&lt;script&gt;" in odd._repr_html_()
    assert "[/bold]" in odd._repr_html_()


def test_verilog_of_a_unit(tmp_path):
    made = concord.verilog("tiny", unit="quantizer")
    made.save(tmp_path / "verilog")
    assert (tmp_path / "verilog" / "quantizer.v").read_text() == made.files["quantizer.v"]
    assert "quantizer.v" in made._repr_html_()


@pytest.mark.parametrize(("call", "words"), [
    (lambda net, model, data: concord.load("nothing.onnx"), "there is no such file"),
    (lambda net, model, data: concord.load(5), "a path or a torch.nn.Module is needed"),
    (lambda net, model, data: concord.load(torch.nn.Linear(2, 2)), "give an example"),
    (lambda net, model, data: concord.load(torch.nn.ELU(), torch.zeros(1, 4)), "Elu"),
    (lambda net, model, data: concord.load(torch.nn.Linear(20, 2), torch.zeros(1, 21)),
     r"^Linear, with an example of the shape \[1, 21\]: PyTorch cannot run it: mat1 and mat2 .*20x2\)$"),
    (lambda net, model, data: concord.load(Fails(), torch.zeros(1, 4)), "PyTorch cannot run it: AssertionError$"),
    (lambda net, model, data: concord.load(Ends(), torch.zeros(1, 4)), "cannot export it .* example: only once$"),
    (lambda net, model, data: concord.verify(torch.nn.Linear(64, 9), data), r"not Linear; concord.load\(module, exam"),
    (lambda net, model, data: concord.quantize(net, data), 'name the machine, such as --preset vision'),
    (lambda net, model, data: concord.quantize(net, data, preset="tiny", ptq_weight="mmse"), "is ptq_weights meant"),
    (lambda net, model, data: concord.finetune(net, data, preset="tiny", epoch=1), "is epochs meant"),
    (lambda net, model, data: concord.finetune(net, data, preset="tiny", epochs=3), r"epochs are 3: two whole numbers"),
    (lambda net, model, data: concord.finetune(net, data, preset="tiny", epochs=(1,)), r"epochs are \(1,\): two whole"),
    (lambda net, model, data: concord.finetune(net, data, preset="tiny", rate=-1), "a learning rate is above 0"),
    (lambda net, model, data: concord.finetune(net, data, preset="tiny", accumulator=0), "0 is no width"),
    (lambda net, model, data: concord.quantize(net, data, preset="tiny", xyz=1), "no option xyz: choose among"),
    (lambda net, model, data: concord.quantize(net, data, preset="tiny", gate_bits=1), "have 2 to 9 bits"),
    (lambda net, model, data: concord.quantize(net, preset="tiny"), "give data to calibrate with"),
    (lambda net, model, data: concord.quantize(net, data, preset="tiny", arithmetic="int"), "choose one of integer"),
    (lambda net, model, data: concord.quantize(model, data, preset="tiny"), "a network in float32 is needed"),
    (lambda net, model, data: concord.quantize(net, (data["x_test"],), preset="tiny"), "a tuple of them"),
    (lambda net, model, data: concord.quantize(net, data, preset="tiny", out="/"), "it is a folder"),
    (lambda net, model, data: concord.finetune(net, None, preset="tiny"), "a DataSet"),
    (lambda net, model, data: concord.compile(net), "a quantised model is needed"),
    (lambda net, model, data: concord.compile(model, preset="serial"), "cannot be compiled"),
    (lambda net, model, data: concord.verify(net), "give data to calibrate and to test with"),
    (lambda net, model, data: concord.verify(model, data, machine="golden", samples=0), "neither 'all' nor a number"),
    (lambda net, model, data: concord.verify(model, data, machine="rtl"), "golden, library, cocotb"),
    (lambda net, model, data: concord.run(model, data, machine="library"), "compile the model first"),
    (lambda net, model, data: concord.run(model, data["x_test"][:, :5]), r"takes numbers\[samples, 64\]"),
    (lambda net, model, data: concord.run(net, data["x_test"][:, :5]), r"takes numbers\[samples, 64\]"),
    (lambda net, model, data: concord.run(model, data["x_test"] * 1e6), "too large for binary16"),
    (lambda net, model, data: concord.run(net, data["y_test"][0]), "takes numbers"),
    (lambda net, model, data: concord.run(net, None), "there is a NoneType, but a DataSet"),
    (lambda net, model, data: concord.run(model, None), "there is a NoneType, but a DataSet"),
])
def test_errors_are_sentences(network, model, data, call, words, capfd):
    with pytest.raises(ValueError, match=words):
        call(network, model, data)
    assert capfd.readouterr() == ("", "")
