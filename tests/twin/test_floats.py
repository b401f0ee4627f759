"""Twins of networks whose elements have exponents of their own have layers, and golden's bits."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ROOM, ImageNetworkMaker
from concord.campaigns.twin_random import calls
from concord.compiler.network import compile_network
from concord.golden.mvm.elements import nearest, representable
from concord.golden.mvm.quantizer import quantize
from concord.golden.mvm.vector_rf import numbers
from concord.net.cells.registry import CELLS
from concord.net.model import INPUT
from concord.spec.machine.config import PRESETS, Config
from concord.spec.numbers.formats import Format
from concord.tests.twin.recovered import agree, golden
from concord.tests.twin.scripts import call, routine
from concord.tests.twin.test_source import load
from concord.tests.twin.training import train
from concord.tests.twin.vocabularies import functions
from concord.twin.lib.script import Script, quantizer
from concord.twin.recovery.recover import recover
from concord.twin.source.frameworks import Framework
from concord.twin.source.writer import tensors, write_twin
from concord.twin.weights import trainable, twin_script, with_tensors
from concord.verification.twins import differing_bits
from safetensors.numpy import load_file

SHARED, ALONE = {"e_min": -11, "e_max": 4}, {"e_min": 4, "e_max": 4}
EIGHT = Format(bits=8, symmetric=True, **SHARED)
E2M1, E3M0, E3M2 = (Format.floating(*pair, **SHARED) for pair in ((2, 1), (3, 0), (3, 2)))
E4M0, E4M3, E5M2 = (Format.floating(*pair, **ALONE) for pair in ((4, 0), (4, 3), (5, 2)))
#: Weights and activations.
MIXTURES = {"powers of two": (E3M0, EIGHT), "floats": (E4M3, E4M3), "shared": (E2M1, E3M2), "inputs": (EIGHT, E4M3),
            "both powers": (E3M0, E3M0), "long": (E5M2, E4M0)}
MIXED = pytest.mark.parametrize("mixture", MIXTURES)


def machine(mixture: str, *, spare: int = 0, whole: int = 14) -> Config:
    """A machine whose accumulator has a number of bits more than the smallest product, and so many before the point."""
    weights, activations = MIXTURES[mixture]
    needed = weights.bits + activations.bits - 2 - weights.e_min - activations.e_min
    return replace(PRESETS["vision"], weights=weights, activations=activations, multipliers=0,
                   **ROOM | {"acc_int": whole, "acc_frac": needed + spare})


def loud(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers from the smallest to the largest, infinities and NaNs."""
    x = (rng.normal(size=shape) * 2.0 ** rng.integers(-16, 8, shape)).astype(np.float16)
    x[0, ..., :3] = np.inf, -np.inf, np.nan
    return x.view(np.uint16)


def cnn(config: Config):
    """An image network with groups, a sum, a maximum, an average and joined images."""
    images = ImageNetworkMaker(np.random.default_rng(0), config, (3, 6, 6), block=True)
    at = images.conv(INPUT, 16, padding=(1, 1, 1, 1))
    other = images.conv(at, 16, padding=(1, 1, 1, 1), groups=16)
    at = images.maximum(images.sum(at, other), (3, 3), stride=(2, 2), padding=(1, 1, 1, 1))
    at = images.concat(at, images.conv(at, 16, (1, 1)))
    images.dense(images.average(at, (3, 3)), 10)
    return images.model()


def recurrent(config: Config, cell: str):
    return networks.recurrent(np.random.default_rng(0), config, [5, 13, 10], block=[True, True], outputs=9,
                              cell=CELLS[cell])


def quantizers(script) -> set[str]:
    return {call.function for call in calls(script)} & {"integers", "floats", "blocks", "float_blocks"}


@MIXED
@pytest.mark.parametrize("settings", [{}, {"spare": 4, "whole": 2}], ids=["roomy", "wraps"])
def test_perceptrons(mixture, settings):
    config, rng = machine(mixture, **settings), np.random.default_rng(0)
    script = agree(config, networks.mlp(rng, config, [20, 33, 10], block=True), loud(rng, 5, 20))
    fmt = config.activations
    alone = "floats" if fmt.e_min == fmt.e_max else "float_blocks"
    assert quantizers(script) == {alone if fmt.precision else "blocks"}
    assert any("wrap" in call.settings for call in calls(script)) == bool(settings)


@MIXED
def test_image_networks(mixture):
    config = machine(mixture)
    model = cnn(config)
    script = agree(config, model, networks.inputs(np.random.default_rng(1), 3, model.inputs))
    functions = [call.function for call in calls(script)]
    assert functions.count("convolution") == 4
    assert "take" not in functions


@pytest.mark.parametrize(("mixture", "cell"), [
    ("floats", "lstm"), ("shared", "gru"), ("both powers", "lstm"), ("long", "lstm-peephole"), ("inputs", "rnn")])
def test_recurrent_networks(mixture, cell):
    config = replace(machine(mixture), mfu_lanes=4)
    script = agree(config, recurrent(config, cell), networks.inputs(np.random.default_rng(1), 3, 4, 5))
    assert not quantizers(script) & {"integers", "blocks"}


def test_integers_that_are_floats():
    fmt, rng = Format.floating(2, 1), np.random.default_rng(0)
    config = replace(PRESETS["vision"], weights=fmt, activations=fmt, multipliers=0, acc_frac=38)
    model = networks.mlp(rng, replace(config, weights=Format(bits=5)), [20, 33, 10], block=False)
    layers = [replace(layer, weights=np.clip(nearest(layer.weights.astype(float), config.weights), -12, 12).astype(
        layer.weights.dtype)) for layer in model.layers]
    script = agree(config, networks.model(layers), loud(rng, 5, 20))
    assert quantizers(script) == {"floats"}
    assert {call.settings["lowest"] for call in calls(script) if call.function == "floats"} <= {-12, 0}


def test_sums_that_float64_does_not_hold_are_sums_of_integers():
    config, rng = replace(machine("long"), activations=EIGHT, acc_int=16, acc_frac=47), np.random.default_rng(0)
    model = networks.mlp(rng, config, [30, 10], block=True)
    loudest = E5M2.highest * rng.choice([-1, 1], model.layers[0].mantissas.shape)
    model, samples = networks.model([replace(model.layers[0], mantissas=loudest)]), loud(rng, 5, 30)
    script = agree(config, model, samples)
    assert "accumulated" in [call.function for call in calls(script)]
    assert golden(compile_network(model, config).firmware, samples).any()


TRAINED = {"floats": "floats", "shared": "float_blocks", "powers of two": "float_blocks", "long": "floats"}


@pytest.mark.parametrize("mixture", TRAINED)
def test_training_on(mixture, tmp_path):
    """A few steps of Adam: the loss falls, weights stay what the firmware can hold, and golden computes the twin."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    config, rng = machine(mixture), np.random.default_rng(0)
    alone = TRAINED[mixture] == "floats"  # rows of a gate are longer than blocks of one operand
    model = recurrent(config, "gru") if alone else networks.mlp(rng, config, [20, 33, 10], block=True)
    firmware = compile_network(model, config).firmware
    script = recover(firmware)
    rounded = trainable(script, firmware)
    assert {rounded[name].function for name, each in script.tensors.items() if each.bits} == {TRAINED[mixture]}
    twin = load(write_twin(script, Framework.TORCH, tmp_path, "twin", rounded)).Twin().trainable()
    inputs, labels = torch.from_numpy(rng.normal(size=(6, 4, 5) if alone else (6, 20))), torch.arange(6)
    train(twin, inputs, labels, steps=8, rate=1e-3, share=0.02)
    twin.save(tmp_path / "trained.safetensors")
    given = load_file(tmp_path / "trained.safetensors")
    changed = with_tensors(firmware, given)
    assert representable(changed.tiles.mantissas, config.weights)
    assert (changed.tiles.mantissas != firmware.tiles.mantissas).sum() > 100
    assert differing_bits(changed, twin_script(changed, given), given) == 0


def test_a_gradient_stops_where_a_float_clips_and_not_where_it_rounds():
    torch = pytest.importorskip("torch")
    x = torch.tensor([1.0, 1.4, 1.6, 0.3, -2.0, torch.nan], requires_grad=True)
    y = functions("torch").floats(x, precision=1, lowest=-1.0, highest=1.0, fraction=6)
    assert y.tolist() == [1.0, 1.0, 1.0, 0.25, -1.0, 0.0]
    y.sum().backward()
    assert x.grad[:5].tolist() == [1, 1, 0, 1, 0]


@pytest.mark.parametrize(("mixture", "element", "value"), [("floats", "E4M3", 17 / 16), ("shared", "E2M1", 5 / 4)])
def test_weights_that_are_no_elements_are_refused(mixture, element, value):
    """They are whole multiples of the smallest element, but have a bit too many."""
    config = machine(mixture)
    model = networks.mlp(np.random.default_rng(0), config, [20, 10], block=True)
    firmware = compile_network(model, config).firmware
    given = tensors(recover(firmware))
    name = next(each for each in given if each.endswith("weights"))
    values = given[name].copy()
    values[0] = 0
    values[0, 0] = value
    with pytest.raises(ValueError, match=f"{name}: its values are no {element} under one exponent"):
        with_tensors(firmware, given | {name: values})
    values[0, 0] = 1
    assert recover(with_tensors(firmware, given | {name: values})).tensors["dense0.weights"].values[0, 0] == 1


def test_graphs_in_onnx_quantize_all_numbers():
    onnxruntime = pytest.importorskip("onnxruntime")
    from concord.twin.source.onnx_graph import onnx_graph

    alone, shared = replace(E4M3, e_min=4), replace(E3M0, e_min=-15, e_max=16)
    bits = np.random.default_rng(0).permutation(1 << 16).astype(np.uint16).reshape(-1, 8)
    for fmt, size in ((alone, 1), (shared, 8), (replace(E2M1, e_max=-2), 8)):
        made = quantizer(fmt, size, integer=False)
        body = call("c", made.function, "x", **dict(made.settings)), call("y", "numbers", "c")
        script = Script(name="q", machine="", inputs=(8,), outputs=8, classes=(), tensors={}, routines=(),
                        main=routine("main", "", "x", "y", *body))
        session = onnxruntime.InferenceSession(onnx_graph(script).SerializeToString())
        found = session.run(None, {"inputs": bits.view(np.float16)})[0].view(np.uint16)
        config = replace(PRESETS["tiny"], activations=fmt, acc_frac=60, acc_int=20)
        mantissas, exponents = quantize(bits.reshape(-1, size), fmt, integer=False)
        assert np.array_equal(found, numbers(config, mantissas, exponents).reshape(-1, 8))
