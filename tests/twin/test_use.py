"""What users do with a twin: the bits are right, or it is refused."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from concord.tests.twin.scripts import SCRIPTS, samples
from concord.tests.twin.test_source import load, results_of
from concord.tests.twin.vocabularies import functions
from concord.twin.lib.script import StoredTensor
from concord.twin.source.frameworks import FORMS, Framework
from concord.twin.source.trained import Rounding
from concord.twin.source.writer import write_twin

DIGITS = SCRIPTS["digits"]
ROUNDED = {"output.scale": Rounding(function="half")}


@pytest.fixture
def torch_twin(tmp_path):
    pytest.importorskip("torch")
    return load(write_twin(DIGITS, Framework.TORCH, tmp_path, "digits", ROUNDED)).Twin()


def patterns(twin) -> np.ndarray:
    """uint16[5, outputs], bits of the results of 5 samples."""
    return twin(samples(DIGITS, 5)).detach().half().numpy().view(np.uint16)


@pytest.mark.parametrize("framework", FORMS)
def test_unquantized_twins_refuse_other_axes(framework, tmp_path):
    """Channels on the last axis would fit by their number of elements, and give other results."""
    pytest.importorskip(framework)
    image = next(each for each in SCRIPTS.values() if len(each.inputs) == 3)
    real = {name: StoredTensor(values=each.values.astype(np.float64)) for name, each in image.tensors.items()}
    script = replace(image, unquantized=True, tensors=real)
    twin = load(write_twin(script, framework, tmp_path, f"real_{framework}")).Twin()
    with pytest.raises(ValueError, match="no batch of samples"):
        twin(np.zeros((2, *script.inputs[1:], script.inputs[0])))


@pytest.mark.parametrize("framework", FORMS)
def test_numbers_of_python_are_rounded_once(framework, tmp_path):
    """A list has numbers of 53 bits: by way of float32, this one would be rounded to 1."""
    pytest.importorskip(framework)
    module = load(write_twin(DIGITS, framework, tmp_path, f"lists_{framework}"))
    given = module.binary16([[1 + 2.0**-11 + 2.0**-30] * 10], DIGITS.inputs)
    assert np.asarray(given).min() == 1 + 2.0**-10


def test_double_keeps_the_bits(torch_twin):
    assert np.array_equal(patterns(torch_twin.double()), results_of(DIGITS))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_types_of_16_bits_are_refused(torch_twin, name):
    """Weights and sums would lose bits, and also after a way back to float32."""
    import torch

    for module in (torch_twin, torch.nn.Sequential(torch_twin)):
        with pytest.raises(ValueError, match="not in 16 bits"):
            module.to(getattr(torch, name))
    assert np.array_equal(patterns(torch_twin), results_of(DIGITS))


def test_autocast_is_refused(torch_twin):
    """It would compute sums in bfloat16."""
    import torch

    with torch.autocast("cpu"), pytest.raises(ValueError, match="autocast"):
        torch_twin(samples(DIGITS, 5))


def test_twins_are_made_trainable_once(torch_twin):
    twin = torch_twin.trainable().trainable()
    assert len(list(twin.parameters())) == 1
    assert np.array_equal(patterns(copy.deepcopy(twin)), results_of(DIGITS))


def test_graphs_of_tensorflow_refuse_unknown_axes(tmp_path):
    """Whether the channels come first cannot be seen then."""
    tensorflow = pytest.importorskip("tensorflow")
    twin = load(write_twin(DIGITS, Framework.TENSORFLOW, tmp_path, "open")).Twin()
    known, unknown = (tensorflow.TensorSpec([None, size], tensorflow.float32) for size in (10, None))
    results = tensorflow.function(twin, input_signature=[known])(samples(DIGITS, 5).astype(np.float32))
    assert np.array_equal(results.numpy().astype(np.float16).view(np.uint16), results_of(DIGITS))
    with pytest.raises(ValueError, match="only the number of samples may be open"):
        tensorflow.function(twin, input_signature=[unknown]).get_concrete_function()


@pytest.mark.parametrize("name", ["digits", "sounds", "pictures"])
def test_exported_programs_take_batches_of_any_size(name, tmp_path):
    torch = pytest.importorskip("torch")
    twin = load(write_twin(SCRIPTS[name], Framework.TORCH, tmp_path, name)).Twin()
    given = torch.from_numpy(samples(SCRIPTS[name], 5)).float()
    given = given[:, :2] if name == "sounds" else given  # each time step is exported by itself
    exported = torch.export.export(twin, (given[:3],), dynamic_shapes=({0: torch.export.Dim("batch")},)).module()
    assert torch.equal(exported(given).half().view(torch.int16), twin(given).half().view(torch.int16))


def test_xla_keeps_each_rounding():
    """It drops casts to float16 and back between a product and a sum."""
    tensorflow = pytest.importorskip("tensorflow")
    add, multiply = functions("tensorflow").add, functions("tensorflow").multiply
    a, b, c = np.random.default_rng(0).normal(size=(3, 10_000)).astype(np.float16)
    given = [tensorflow.constant(each, tensorflow.float32) for each in (a, b, c)]
    results = tensorflow.function(lambda *each: add(multiply(*each[:2]), each[2]), jit_compile=True)(*given)
    assert np.array_equal(results.numpy(), a * b + c)
