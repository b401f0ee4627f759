"""The functions of unquantised source: the same numbers in all frameworks, and those of mathematics."""

import math
from functools import partial

import numpy as np
import pytest
from concord.tests.twin import vocabularies
from concord.tests.twin.vocabularies import VOCABULARIES
from concord.twin.source.vocabulary import vocabulary
from concord.twin.vocabulary import layout, unquantized

FRAMEWORKS = pytest.mark.parametrize("framework", VOCABULARIES)
functions = partial(vocabularies.functions, unquantized=True)


def value(framework: str, array: np.ndarray):
    """A float64 array as a value of a framework."""
    if framework == "torch":
        import torch

        return torch.from_numpy(array)
    return array


@FRAMEWORKS
def test_no_samples_have_no_results(framework):
    found = functions(framework)
    for shape, given in ((6,), (0, 6)), ((None, 6), (0, 4, 6)), ((3, 5, 2), (0, 30)):
        sizes = [size or 4 for size in shape]
        assert tuple(found.reals(value(framework, np.zeros(given)), shape).shape) == (0, *sizes)
    pixels, weights = value(framework, np.zeros((0, 3, 5, 4))), value(framework, np.ones((6, 2, 2, 2)))
    assert tuple(found.convolution(pixels, weights, groups=2).shape) == (0, 2, 4, 6)


@FRAMEWORKS
def test_curves_clips_and_softmax(framework):
    found, numbers = functions(framework), np.array([[-800.0, -3.25, -1e-9, 0, 2, 40, 800], [3, 1, -2, 0, 2, 3, 1]])
    given = value(framework, numbers)
    sigmoid = [1 / (1 + math.exp(-a)) if a > -700 else 0.0 for a in numbers[0].tolist()]
    np.testing.assert_allclose(np.asarray(found.sigmoid(given))[0], sigmoid, rtol=1e-14, atol=1e-300)
    np.testing.assert_allclose(np.asarray(found.tanh(given)), np.tanh(numbers), rtol=1e-14)
    positive = np.abs(numbers[1:]) + 0.5
    for name, wanted in (("exp", np.exp(positive)), ("reciprocal", 1 / positive), ("rsqrt", positive**-0.5),
                         ("sqrt", positive**0.5)):
        got = getattr(found, name)(value(framework, positive))
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-14, err_msg=name)
    np.testing.assert_array_equal(np.asarray(found.clip(given, lowest=-0.5, highest=math.inf)),
                                  np.maximum(numbers, -0.5))
    for row, softmax in zip(numbers.tolist(), np.asarray(found.softmax(given)), strict=True):
        powers = [math.exp(a - max(row)) for a in row]
        np.testing.assert_allclose(softmax, np.array(powers) / sum(powers), atol=1e-300)


@FRAMEWORKS
def test_inputs_are_float64_of_any_number_of_steps(framework):
    found = functions(framework).reals(np.arange(24, dtype=np.float16).reshape(2, 4, 3), (None, 3))
    assert np.asarray(found).dtype == np.float64
    np.testing.assert_array_equal(np.asarray(found), np.arange(24.0).reshape(2, 4, 3))


@FRAMEWORKS
@pytest.mark.parametrize("settings", [
    {}, {"stride": (2, 1), "padding": (1, 0, 2, 1), "fill": 0.3, "scale": 2}, {"groups": 2, "scale": -1},
    {"dilation": (2, 1), "padding": (1, 1, 1, 1)}])
def test_convolutions(framework, settings):
    """Each window is a dense layer."""
    rng = np.random.default_rng(0)
    groups = settings.get("groups", 1)
    images, weights, start = rng.normal(size=(2, 6, 7, 4)), rng.normal(size=(6, 3, 2, 4 // groups)), rng.normal(size=6)
    found = functions(framework).convolution(*(value(framework, each) for each in (images, weights, start)), **settings)
    moves = {name: settings[name] for name in ("stride", "padding", "dilation", "fill") if name in settings}
    seen = layout.windows(images, (3, 2), **moves).reshape(2, *found.shape[1:3], 6, groups, -1)
    wanted = np.concatenate([unquantized.dense(
        seen[..., group, :].reshape(*seen.shape[:3], -1), weights.reshape(groups, 6 // groups, -1)[group],
        start.reshape(groups, -1)[group], scale=settings.get("scale", 0)) for group in range(groups)], -1)
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-12, atol=1e-12)


@FRAMEWORKS
def test_all_frameworks_have_the_same_functions(framework):
    new = {"reals", "clip", "sigmoid", "tanh", "softmax", "total", "largest", "dense", "convolution"}
    assert new <= vocabulary(framework, unquantized=True).names
    (text,) = vocabulary(framework, unquantized=True).select(["dense"]).functions
    assert "wrap" not in text
