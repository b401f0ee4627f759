"""Source that is written from scripts made by hand: it computes what the scripts say, and reads well."""

import ast
import subprocess
import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location

import numpy as np
import pytest
from concord.tests.twin.scripts import SCRIPTS, call, halves, routine, samples
from concord.tests.twin.vocabularies import imported
from concord.twin.lib.run import run
from concord.twin.lib.script import Script, StoredTensor
from concord.twin.source.frameworks import FORMS, Framework
from concord.twin.source.writer import module_name, source, tensors, write_twin
from concord.twin.vocabulary import numpy_functions
from concord.verification.twins import TwinSource


def load(path):
    """The module of a source file."""
    spec = spec_from_file_location(path.stem, path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", SCRIPTS)
def test_numpy_source_computes_what_the_script_says(name, tmp_path):
    script = SCRIPTS[name]
    twin = load(write_twin(script, Framework.NUMPY, tmp_path, name)).Twin()
    inputs = samples(script, 5)
    with np.errstate(all="ignore"):
        expected = run(script, inputs, numpy_functions)
    flat = inputs.reshape(*inputs.shape[: 1 + script.inputs.count(None)], -1)
    for given in (inputs, inputs.astype(np.float64), flat.tolist()):
        results = twin(given)
        assert results.dtype == np.float16
        assert np.array_equal(results.view(np.uint16), expected.view(np.uint16))


def results_of(script) -> np.ndarray:
    """uint16[5, ...], bits of the interpreter's results of 5 samples."""
    with np.errstate(all="ignore"):
        return run(script, samples(script, 5), numpy_functions).view(np.uint16)


@pytest.mark.parametrize("name", SCRIPTS)
def test_torch_source_computes_what_the_script_says(name, tmp_path):
    torch = imported("torch")
    script = SCRIPTS[name]
    twin = load(write_twin(script, Framework.TORCH, tmp_path, name)).Twin()
    results = twin(torch.from_numpy(samples(script, 5))).half().numpy()
    assert np.array_equal(results.view(np.uint16), results_of(script))


@pytest.mark.parametrize("name", SCRIPTS)
def test_tensorflow_source_computes_what_the_script_says(name, tmp_path):
    """As it is, and as a graph."""
    tensorflow = imported("tensorflow")
    script = SCRIPTS[name]
    twin = load(write_twin(script, Framework.TENSORFLOW, tmp_path, name)).Twin()
    for compute in (twin, tensorflow.function(twin), tensorflow.function(twin, jit_compile=True)):
        results = compute(samples(script, 5)).numpy().astype(np.float16)
        assert np.array_equal(results.view(np.uint16), results_of(script))


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("framework", FORMS)
def test_a_batch_of_no_samples_has_no_results(name, framework, tmp_path):
    pytest.importorskip(framework)
    script = SCRIPTS[name]
    twin = TwinSource(write_twin(script, framework, tmp_path, name), framework)
    with np.errstate(all="ignore"):
        found = twin.numbers(samples(script, 5)[:0])
    assert found.shape == (0, *results_of(script).shape[1:])


@pytest.mark.parametrize("framework", FORMS)
def test_inputs_of_another_shape_are_refused(framework, tmp_path):
    """A sequence without a batch, and features instead of time steps, would fit by their number of elements."""
    imported(framework)
    twin = load(write_twin(SCRIPTS["sounds"], framework, tmp_path, f"sounds_{framework}")).Twin()
    steps, size = 6, SCRIPTS["sounds"].inputs[1]
    assert twin(np.zeros((3, steps, size))).shape == twin(np.zeros((3, steps, size, 1))).shape
    for shape in ((steps, size), (3, size, steps), (size,)):
        with pytest.raises(Exception, match=r"(?i)shape"):
            twin(np.zeros(shape))


@pytest.mark.parametrize("framework", FORMS)
def test_images_with_other_axes_are_refused(framework, tmp_path):
    """Channels on the last axis would fit by their number of elements, and give other results."""
    imported(framework)
    script = next(each for each in SCRIPTS.values() if len(each.inputs) == 3 and each.inputs[0] > 1)
    channels, rows, columns = script.inputs
    twin = load(write_twin(script, framework, tmp_path, f"image_{framework}")).Twin()
    assert twin(np.zeros((2, channels, rows, columns))).shape == twin(np.zeros((2, channels * rows * columns))).shape
    with pytest.raises(ValueError, match="no batch of samples"):
        twin(np.zeros((2, rows, columns, channels)))


def test_numpy_source_needs_numpy_alone(tmp_path):
    """It runs in a process that sees no other package, and not this project."""
    path = write_twin(SCRIPTS["sounds"], Framework.NUMPY, tmp_path, "sounds")
    code = (f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import numpy as np, sounds\n"
            f"print(sounds.Twin()(np.zeros((3, 2, 4))).shape)\n"
            f"assert not {{'concord', 'safetensors', 'torch'}} & sys.modules.keys()")
    words = [sys.executable, "-I", "-W", "error", "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "(3, 2)\n"), done.stderr
    assert path == tmp_path / "sounds.py"


@pytest.mark.parametrize("framework", FORMS)
def test_source_is_clean(framework, tmp_path):
    for name, script in SCRIPTS.items():
        text = source(script, framework, name)
        assert max(map(len, text.splitlines())) <= 100
        (tmp_path / f"{name}.py").write_text(text)
    done = subprocess.run([sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E,F,W,I,B,UP,C4,SIM",
                           "--line-length", "100", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_source_holds_only_what_it_uses():
    functions = {node.name for node in ast.parse(source(SCRIPTS["sounds"], Framework.NUMPY, "sounds")).body
                 if isinstance(node, ast.FunctionDef)}
    assert functions == {"read", "binary16", "shaped", "squeezed", "curve", "integers", "dense", "rounded", "start"}


def lines_of(*body, parameters="x", results="y") -> list[str]:
    """Lines of the main method of a script in numpy."""
    names = {"d.weights", "d.scale", "d.bias", *(f"long.name_of_tensor_{index}" for index in range(9))}
    script = Script(name="t", machine="tiny", inputs=(2,), outputs=2, classes=(), routines=(),
                    main=routine("main", "Test", parameters, results, *body),
                    tensors={name: StoredTensor(values=np.zeros(2, np.float16)) for name in names})
    text = source(script, Framework.NUMPY, "t").splitlines()
    first = next(index for index, line in enumerate(text) if "binary16(inputs" in line) + 1
    return [line.strip() for line in text[first:text.index("", first)]]


def test_calls_are_put_into_those_that_use_them():
    assert lines_of(call("y", "multiply", "x", "d.scale"), call("y", "add", "y", "d.bias"), call("y", "relu", "y")) == [
        "return relu(x * self.d_scale + self.d_bias)"]


def test_the_order_of_roundings_stays():
    assert lines_of(call("a", "add", "x", "d.bias"), call("y", "add", "x", "a")) == ["return x + (x + self.d_bias)"]
    assert lines_of(call("a", "add", "x", "d.bias"), call("y", "subtract", "a", "x")) == ["return x + self.d_bias - x"]
    assert lines_of(call("a", "add", "x", "x"), call("y", "multiply", "a", "x")) == ["return (x + x) * x"]


def test_values_that_are_needed_again_keep_their_line():
    twice = lines_of(call("a", "relu", "x"), call("y", "add", "a", "a"))
    assert twice == ["a = relu(x)", "return a + a"]
    later = lines_of(call("a", "relu", "x"), call("b", "add", "a", "x"), call("y", "add", "b", "a"))
    assert later == ["a = relu(x)", "return a + x + a"]


def test_what_a_call_reads_is_not_changed_before_it():
    changed = lines_of(call("a", "relu", "x"), call("x", "add", "x", "d.bias"), call("x", "multiply", "x", "x"),
                       call("y", "maximum", "x", "a"))
    assert changed == ["a = relu(x)", "x = x + self.d_bias", "return maximum(x * x, a)"]


def test_codes_of_products_keep_their_name_and_notes_stay():
    text = lines_of(call("c", "integers", "x", lowest=0, highest=3, note="two bits"),
                    call("y", "dense", "c", "d.weights", scale=0, wrap=12))
    assert text == ["# two bits", "c = integers(x, lowest=0, highest=3)", "return dense(c, self.d_weights, wrap=12)"]


def test_long_calls_have_several_lines():
    text = lines_of(call("y", "join", *(f"long.name_of_tensor_{index}" for index in range(9))))
    assert len(text) == 5
    assert text[0].startswith("return join(self.long_name_of_tensor_0, ")
    assert text[-1].endswith("self.long_name_of_tensor_8)")


def test_values_are_not_called_as_functions_are():
    text = lines_of(call("start", "relu", "x"), call("np", "add", "start", "start"), call("y", "maximum", "np", "np"))
    assert text == ["start_ = relu(x)", "np_ = start_ + start_", "return maximum(np_, np_)"]


def test_long_sums_have_two_lines():
    name = "v" * 50
    text = lines_of(call(name, "relu", "x"), call("y", "add", name, name))
    assert text == [f"{name} = relu(x)", f"return ({name}", f"+ {name})"]


@pytest.mark.parametrize("name", ['a"""b', "ends in a \\", '"', "two\nlines", "nul\0", "\\N"])
def test_any_name_of_a_network_stays_inside_its_docstrings(name):
    script = next(iter(SCRIPTS.values()))
    named = replace(script, name=name, main=replace(script.main, title=f"The network {name}"))
    for framework in FORMS:
        body = ast.parse(source(named, framework, "net")).body
        wanted = ast.parse(source(script, framework, "net")).body
        assert list(map(type, body)) == list(map(type, wanted))
        assert ast.get_docstring(ast.Module(body, [])).startswith("The network ")


def test_any_name_of_a_network_makes_a_module(tmp_path):
    names = ["my-net", "my net 2", "3d", "class", "None", "a.b", "../up", "", "x" * 300, "\u00e9t\u00e9"]
    stems = [f"{module_name(name)}_numpy" for name in names]
    for stem in stems:
        write_twin(next(iter(SCRIPTS.values())), Framework.NUMPY, tmp_path, stem)
    assert sorted(tmp_path.glob("*.py")) == sorted(tmp_path / f"{stem}.py" for stem in stems)
    code = "\n".join(f"from {stem} import Twin; Twin()" for stem in stems)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_two_tensors_of_one_name_are_refused():
    script = SCRIPTS["digits"]
    stored = {**script.tensors, "hidden1_bias": halves(np.random.default_rng(0), 12)}
    clash = Script(name="digits", machine="tiny", inputs=(10,), outputs=3, classes=(), main=script.main,
                   routines=script.routines, tensors=stored)
    with pytest.raises(ValueError, match="two things of one name"):
        tensors(clash)
