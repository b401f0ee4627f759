"""Quantities that are initialised one after the other, with training between."""

import csv
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from concord.datasets.samples import DataSet, Samples, Task
from concord.lib.input_axes import Order
from concord.net.quantize.options import QuantizationOptions
from concord.net.quantize.recipe import Recipe
from concord.net.quantize.stages import Quantity, stages_of

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
from concord.frontends.torch.read import graph_of
from concord.net.quantize import tensors
from concord.net.quantize.choices import Choices
from concord.net.quantize.codes import InputCodes
from concord.net.quantize.node_results import results
from concord.net.quantize.quantized import calibrate, prepared
from concord.net.quantize.staged import with_weights
from concord.tests.float_networks import sequences
from concord.train.lib.fit import cross_entropy
from concord.train.lib.observer import CsvLog, Observer
from concord.train.network.quantized_network import QuantizedNetwork, behind_quantizers
from concord.train.network.stages import in_stages, so_far
from concord.train.overflow.options import OverflowOptions
from concord.train.runs.imported import train_imported
from concord.train.runs.qat_training import train_quantized
from torch import nn

pytestmark = pytest.mark.usefixtures("seeded")
ORDERS = [", ".join(f"{one}:1" for one in order) for order in permutations(Quantity)]


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 2, padding=1), nn.Flatten(),
                         nn.ReLU(), nn.Linear(64, 3)).eval()


def trained(stages: str, x: torch.Tensor, labels: torch.Tensor):
    """A network that is trained in stages, the starts of its stages, and what was trained before each of them."""
    recipe = Recipe(weights_bits=3, input_bits=4, stages=stages_of(stages))
    net = behind_quantizers(small(), x, recipe, machine=True)
    starts, made = [], [(net.plan, so_far(net))]

    def train(name: str, epochs: int):
        starts.append((name, net(x).detach()))
        train_quantized(net, lambda index: cross_entropy(net(x[index]), labels[index]), len(x), lowered=False, seed=0,
                        epochs=epochs, rate=0.05, batch=10, name=name)
        made.append((with_weights(net.plan, so_far(net)), so_far(net)))

    in_stages(net, x, 9, train)
    return net, starts, made


def post_training(plan, found, known: set[Quantity], new: set[Quantity], x: torch.Tensor) -> torch.Tensor:
    """What post-training quantisation makes of a float network, where earlier stages have left some numbers."""
    weights, codes = Quantity.WEIGHTS in known, known - {Quantity.WEIGHTS}
    recipe = Recipe(weights_bits=3 if weights else None, input_bits=4 if codes else None)
    arithmetic = prepared(plan.graph, Choices(recipe=recipe), machine=False)
    calibrate(arithmetic, x.numpy())
    entering = {node.name: inputs[0] for node, inputs, _ in results(plan.graph, x.numpy())}
    for part in arithmetic.plan.parts:
        rows = arithmetic.rows.get(part.name)
        if rows is None:
            continue
        earlier, now = found[part.name], rows.inputs
        if weights and Quantity.WEIGHTS not in new:
            rows = replace(rows, weights=earlier.integers[0], gain=earlier.integers[1])
        if codes and not new & codes:
            now = earlier.inputs
        elif codes and not new >= codes or len(codes) == 1:
            samples = entering[part.node].reshape(len(x), -1)
            now = one_of(now, earlier.inputs, samples, Quantity.OFFSETS in new, part.padded)
        arithmetic.rows[part.name] = replace(rows, inputs=now)
    return QuantizedNetwork(arithmetic)(x).detach()


def one_of(found: InputCodes, earlier: InputCodes | None, samples: np.ndarray, offset: bool, padded: bool):
    """Codes with a new offset beside the saturation so far, or the largest input; or with a new saturation."""
    if not offset:
        m = earlier.offset if earlier else 0.0
        b = tensors.activations(samples, found.levels, offset=m, padded=padded)[0]
    else:
        m = found.offset
        b = max(earlier.step * 15 if earlier else max(float(samples.max()) - m, -m * padded), -m * padded)
    return replace(found, step=float(np.float32(b)) / 15, offset=m)


@pytest.fixture(scope="module")
def samples():
    made = torch.Generator().manual_seed(2)
    x = torch.randn(30, 2, 8, 8, generator=made).half().float()
    return x, torch.randint(3, (30,), generator=made)


@pytest.mark.parametrize("order", [*ORDERS, "weights+saturations:1, offsets:1", "saturations+offsets:0, weights:1"])
def test_each_stage_starts_with_the_bits_of_ptq_of_what_is_initialised(order, samples):
    net, starts, made = trained(order, *samples)
    known = set()
    for stage, (name, outputs), (plan, found) in zip(net.recipe.stages, starts, made, strict=False):
        assert name == f"stage {stage}"
        known |= set(stage.quantities)
        assert torch.equal(outputs, post_training(plan, found, known, set(stage.quantities), samples[0]))
    assert known == set(Quantity)
    assert len(starts) == len(net.recipe.stages)
    assert all(layer.inputs.offset.requires_grad and layer.inputs.saturation.requires_grad
               for layer in net.layers.values())
    assert torch.isfinite(net(samples[0], lowered=True)).all()
    assert len(net.lower()[0]) == 4


@pytest.mark.parametrize(("text", "message"), [
    ("weights:1, saturations:1", "offsets must stand in one stage, not in 0"),
    ("weights:1, weights:1, saturations+offsets:1", "weights must stand in one stage, not in 2"),
    ("scales:1", "'scales' cannot be initialised; choose among weights, saturations, offsets"),
    ("weights, saturations:1, offsets:2", "'weights' needs a number of epochs")])
def test_stages_that_are_none_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        QuantizationOptions(stages=text).recipe()


def test_what_has_no_stages_is_refused(samples):
    wanted = "weights:1, saturations:1, offsets:1"
    with pytest.raises(ValueError, match="--stages initialises by post-training quantisation"):
        QuantizationOptions(stages=wanted, batch_norm=True).recipe()
    with pytest.raises(ValueError, match="--accumulator counts sums of integers"):
        OverflowOptions(accumulator=16).check(staged=True)
    with pytest.raises(ValueError, match="leave --stages out for recurrent networks"):
        behind_quantizers(sequences(), torch.zeros(2, 4, 6), Recipe(stages=stages_of(wanted)))


def test_the_log_has_the_start_of_each_stage(samples, tmp_path):
    x, labels = samples
    images = DataSet(name="own", task=Task.CLASSIFICATION, shape=(2, 8, 8), description="", order=Order.MACHINE,
                     calibration=None, **{name: Samples(inputs=x.flatten(1).numpy().astype(np.float16).view(np.uint16),
                                                        labels=labels.numpy()) for name in ("train", "test")})
    choices = QuantizationOptions(weights_bits=4, input_bits=4, stages="offsets:0, weights:1, saturations:1").choices()
    train_imported(tmp_path / "model.safetensors", network=graph_of(small(), (2, 8, 8), "own"), data=images,
                   choices=choices, progress=Observer(log=CsvLog(tmp_path / "log.csv")))
    with (tmp_path / "log.csv").open(newline="") as file:
        found = [(row["phase"], row["epoch"]) for row in csv.DictReader(file) if row["accuracy"]]
    assert found == [("stage offsets", "0"), ("stage weights", "0"), ("stage weights", "1"), ("stage saturations", "0"),
                     ("stage saturations", "1"), ("QAT, lowered", "1")]
