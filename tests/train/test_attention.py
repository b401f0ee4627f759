"""Networks with attention under training: golden's bits, gradients, overflow counts, and models from files."""

import csv
from dataclasses import replace
from pathlib import Path

import concord
import numpy as np
import pytest
from concord.datasets.samples import DataSet, Samples
from concord.net import graph_file
from concord.net.graph import Graph
from concord.net.layers.attention import BlockAttention
from concord.net.model_file import load_model
from concord.net.ops.attention import Attention
from concord.net.ops.joins import Addition
from concord.net.ops.pointwise import Gelu
from concord.net.ops.reduction import FeatureNorm
from concord.net.ops.reshape import Tokens
from concord.net.ops.scale import Offsets
from concord.net.quantize.choices import BlockRecipe, Choices
from concord.net.quantize.node_results import outputs
from concord.net.quantize.quantized import calibrate, prepared
from concord.net.quantize.quantized import quantized as without_training
from concord.net.quantize.recipe import Recipe
from concord.net.quantize.stages import stages_of
from concord.tests.command_line import done
from concord.tests.compiler.test_attention import attention, block
from concord.tests.float_networks import Chain

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
from concord.tests.train.test_imported import assert_golden, data_for, given, quantized, step
from concord.train.lib.checkpoints import Checkpoints
from concord.train.lib.observer import CsvLog, Observer
from concord.train.network.quantized_network import QuantizedNetwork
from concord.train.overflow.options import OverflowOptions
from concord.train.runs.imported import train_imported

pytestmark = pytest.mark.usefixtures("seeded")
EIGHT = Choices(recipe=BlockRecipe(weights_bits=8, input_bits=8))
FEW = Choices(recipe=BlockRecipe(weights_bits=3, input_bits=4, block=8))
FLOATS = Choices(recipe=BlockRecipe(weights_element=(2, 1), input_element=(3, 2), input_exponents=(-4, 3)))
INTEGERS = Choices(recipe=Recipe(weights_bits=4, input_bits=5))
SHAPES = {
    "one head of five channels": {"heads": 1, "size": 5}, "across native vectors": {
        "heads": 3, "size": 24, "positions": (1, 33), "masks": 1},
    "two heads in one": {"heads": 2, "size": 8, "causal": True}, "other values": {"heads": 2, "size": 8, "values": 24},
    "an image": {"heads": 4, "size": 8, "positions": (5, 4), "masks": 4}}


def class_token(positions: int = 6, width: int = 16) -> Graph:
    """Layers of a vision transformer: a token, offsets, attention between norms and sums, a GELU, and scores."""
    chain, norm = Chain((5, 1, positions)).conv("patches", width, 5, (1, 1)), {"bias": np.zeros(width, np.float32)}
    chain.add(Tokens(tokens=chain.weights(width, 1)), "token")
    chain.add(Offsets(offset=chain.weights(width, 1, 1 + positions)), "places")
    chain.add(FeatureNorm(weight=chain.weights(width) + 1, **norm), "first")
    for name in "qkv":
        chain.conv(name, width, width, (1, 1), sources=("first",))
    chain.add(Attention(heads=2), "heads", ("q", "k", "v")).conv("out", width, width, (1, 1))
    chain.add(Addition(), "sum", ("places", "out")).add(FeatureNorm(weight=chain.weights(width) + 1, **norm), "second")
    chain.conv("wide", 2 * width, width, (1, 1)).add(Gelu(exact=True), "gelu").conv("narrow", width, 2 * width, (1, 1))
    chain.add(Addition(), "whole", ("sum", "narrow"))
    return chain.conv("scores", 4, width, (1, 1 + positions)).network("token")


@pytest.mark.parametrize("choices", [EIGHT, FEW, FLOATS, INTEGERS], ids=["8 bits", "few", "floats", "integers"])
@pytest.mark.parametrize("name", SHAPES)
def test_attention_equals_golden(name, choices):
    found = given(attention(**SHAPES[name]))
    assert_golden(found, quantized(found, choices))


@pytest.mark.parametrize("choices", [FEW, INTEGERS], ids=["blocks", "integers"])
@pytest.mark.parametrize("make", [block, class_token])
def test_transformers_are_trained_and_equal_golden(make, choices):
    found = given(make())
    net = quantized(found, choices)
    for lowered in (False, True):
        step(found, net, lowered)
        assert_golden(found, net)
        assert all(p.grad.abs().sum() > 0 for name, p in net.named_parameters() if "weight" in name and p.requires_grad)


@pytest.mark.parametrize("choices", [FEW, INTEGERS], ids=["blocks", "integers"])
def test_training_begins_where_quantisation_without_training_ends(choices):
    found = given(attention(3, 12, (1, 20), masks=1))
    x = found.numbers(found.calibration)
    arithmetic = prepared(found.network, choices)
    calibrate(arithmetic, x)
    made = without_training(prepared(found.network, choices), x)
    with torch.no_grad():
        trained = QuantizedNetwork(arithmetic)(torch.from_numpy(x)).numpy()
    close = np.isclose(trained, outputs(made.graph, x), rtol=1e-3, atol=1e-4)
    assert close.mean() > 0.98  # float32 rounds some numbers to the other side of a tie


def test_sums_that_float64_does_not_hold_are_refused():
    found = given(attention(1, 8))
    net = quantized(found, Choices(recipe=BlockRecipe(weights_bits=8, input_bits=8, exponents=(-15, 4))))
    with torch.no_grad():
        net.layers["q"].weight.mul_(100)
        net.layers["k"].weight.mul_(100)
    with pytest.raises(ValueError, match=r"layer '(a|q|k)': sums up to .* are not exact in float64; use fewer bits"):
        net(torch.full((1, 35), 100.0), lowered=True)


def learnable() -> DataSet:
    """Positions whose classes a block tells apart."""
    rng, labels = np.random.default_rng(2), np.arange(120) % 4
    x = rng.normal(size=(4, 5 * 6))[labels] + 0.5 * rng.normal(size=(120, 5 * 6))
    samples = Samples(inputs=x.astype(np.float16).view(np.uint16), labels=labels.astype(np.uint8))
    return replace(data_for(class_token()), train=samples.part(slice(80)), test=samples.part(slice(80, 120)))


@pytest.mark.parametrize(("choices", "overflow"), [
    (FEW, OverflowOptions()), (INTEGERS, OverflowOptions(accumulator=9)),
    (Choices(recipe=replace(INTEGERS.recipe, stages=stages_of("weights:2, saturations+offsets:2"))),
     OverflowOptions())], ids=["blocks", "accumulator", "stages"])
def test_losses_fall_and_training_resumes(choices, overflow, tmp_path):
    rows = []

    def train(name: str) -> bytes:
        observer = Observer(log=CsvLog(tmp_path / f"{name}.csv"), checkpoints=Checkpoints(tmp_path / "c", {}))
        train_imported(tmp_path / name / "m", network=class_token(), data=learnable(), choices=choices, epochs=(4, 1),
                       rate=0.02, overflow=overflow, progress=observer)
        with (tmp_path / f"{name}.csv").open(newline="") as file:
            rows[:] = csv.DictReader(file)
        return (tmp_path / name / "m").read_bytes()

    whole = train("whole")
    losses = [float(row["loss"]) for row in rows if row["loss"]]
    assert losses[-1] < 0.7 * losses[0]
    for path in (tmp_path / "c").iterdir():
        if "lowered" in path.name:
            path.unlink()
    assert train("again") == whole
    assert len([row for row in rows if row["loss"]]) == len(losses)


def test_the_command_and_python_train_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    graph_file.save(class_token(), "vit.safetensors")
    data = learnable()
    x = [part.inputs.view(np.float16).astype(np.float32).reshape(-1, 5, 1, 6) for part in (data.train, data.test)]
    arrays = {"x_train": x[0], "y_train": data.train.labels, "x_test": x[1], "y_test": data.test.labels}
    np.savez("d.npz", **arrays)
    few = ("--arithmetic", "bfp", "--weights-bits", "3", "--input-bits", "4")
    done("train", "vit.safetensors", "--data", "d.npz", *few, "--epochs", "1,1", "-o", "t.safetensors")
    model = load_model(Path("t.safetensors"))
    (heads,) = (layer for layer in model.layers if isinstance(layer, BlockAttention))
    assert (heads.weights_format.bits, heads.input_format.bits) == (3, 4)
    made = concord.finetune("vit.safetensors", arrays, arithmetic="bfp", weights_bits=3, input_bits=4, epochs=(1, 1))
    assert made.measures["golden"] == model.provenance.golden_accuracy
