"""Quantisation-aware training of any network: step 0, gradients, and the bits of golden."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from concord.net import network
from concord.net.arithmetic.line import Line
from concord.net.float_network import float_network
from concord.net.lowering import lowering
from concord.net.model import Model, Provenance
from concord.net.quantize.recipe import (
    ActivationMethod,
    ActivationTraining,
    Methods,
    Recipe,
    Start,
    WeightMethod,
    WeightTraining,
)
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
from concord.frontends.torch.read import graph_of
from concord.net.quantize import codes as input_codes
from concord.net.quantize import tensors as ptq
from concord.net.quantize.integers import Rows
from concord.net.quantize.plan import Unsupported
from concord.net.quantize.weights import Grid
from concord.train.lib.export import patterns
from concord.train.lib.fit import fit
from concord.train.lib.straight_through import CodesFunction
from concord.train.network.quantized_network import QuantizedNetwork, behind_quantizers
from concord.train.qat.activations import activations
from concord.train.qat.layer import QuantizedAverage
from concord.train.qat.parts import TrainedParts
from concord.train.qat.weights import weights
from torch import nn

PAIRS = list(product(WeightTraining, ActivationTraining))


class Branches(nn.Module):
    """A network with folded normalisation, pooling, depthwise and linear layers, two branches, and averages."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.pool = nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.MaxPool2d(2)
        self.wide, self.apart = nn.Conv2d(6, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.narrow, self.side = nn.Conv2d(6, 6, 1), nn.Conv2d(6, 4, 1, stride=2)
        self.mean, self.last = nn.AdaptiveAvgPool2d(1), nn.Linear(6 + 4 * 4, 3)

    def forward(self, x):
        x = torch.relu(self.pool(self.norm(self.first(x))))
        x = torch.relu(self.narrow(self.apart(torch.relu(self.wide(x)))) + x)
        return self.last(torch.cat([self.mean(x).flatten(1), torch.relu(self.side(x)).flatten(1)], 1))


@pytest.fixture(scope="module")
def net():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    made = Branches()
    for _ in range(10):
        made(torch.rand(32, 1, 8, 8))
    return made.eval()


@pytest.fixture(scope="module")
def images():
    return torch.rand(24, 1, 8, 8, generator=torch.Generator().manual_seed(1)).half().float()


def model(quantized: QuantizedNetwork) -> Model:
    layers, sources = quantized.lower()
    where = Provenance(command="", method="", seed=0, fp32_accuracy=0.0, quantized_accuracy=0.0, golden_accuracy=0.0)
    return Model(name="net", data="none", preprocessing="", classes=("a", "b", "c"), layers=layers, sources=sources,
                 provenance=where, fp32_predictions=np.zeros(1, np.uint8), quantized_predictions=np.zeros(1, np.uint8))


def equal_to_golden(quantized, images):
    """Assert that every operation gives golden's bits."""
    with torch.no_grad():
        made = quantized.trace(images, lowered=True)
    made_by_golden = model(quantized)
    for layer, trace in zip(made_by_golden.layers, network.forward(made_by_golden, patterns(images.flatten(1))),
                            strict=True):
        assert np.array_equal(trace.outputs, patterns(made[layer.name].flatten(1))), layer.name


def weights_of(rows: np.ndarray, bits: int, recipe: Recipe, fold: float = 1.0):
    """The quantiser of rows, which starts as a recipe says."""
    grid = Grid.trained(recipe.weights, bits, recipe.symmetric[0])
    integers, gain = ptq.rows_of_recipe(rows, grid, recipe, fold)
    start = Rows(weights=integers, gain=gain, constant=np.zeros(len(rows)), grid=grid, inputs=None, op=None)
    return weights(rows, start, recipe, fold)


def step(quantized, images):
    """Make one step of training."""
    optimiser = torch.optim.SGD(quantized.groups(0.02), momentum=0.9)
    nn.functional.cross_entropy(quantized(images), torch.arange(len(images)) % 3).backward()
    optimiser.step()
    quantized.bound()


@pytest.mark.parametrize(("of_weights", "of_activations"), PAIRS)
def test_every_pair_equals_golden_before_and_after_training(of_weights, of_activations, net, images):
    for bits in (2, 4, 8):
        recipe = Recipe(weights_bits=bits, input_bits=bits, weights=of_weights, activations=of_activations)
        quantized = behind_quantizers(net, images, recipe)
        equal_to_golden(quantized, images)
        before = [p.detach().clone() for p in quantized.parameters()]
        step(quantized, images)
        assert any((p != q).any() for p, q in zip(quantized.parameters(), before, strict=True))
        equal_to_golden(quantized, images)


@pytest.mark.parametrize("of_activations", list(ActivationTraining))
def test_parts_of_inputs_are_trained_with_the_bits_of_golden(of_activations, net, images):
    recipe = Recipe(input_bits=3, activations=of_activations, methods=Methods(parts=3))
    quantized, wanted = behind_quantizers(net, images, recipe), graph_of(net, (1, 8, 8)).run(images.numpy())
    trained, shifted = of_activations.load().learns_saturation, of_activations.learns_offset
    for count in range(3):
        equal_to_golden(quantized, images)
        np.testing.assert_allclose(float_network(model(quantized)).run(images.numpy()), wanted, atol=2e-5)
        found = [layer.parts for layer in quantized.layers.values() if getattr(layer, "parts", None)]
        assert any(len(parts.change) == 3 for parts in found)
        assert any((parts.change != 0).any() for parts in found) == (trained and count > 0)
        assert any((parts.shift != 0).any() for parts in found) == (shifted and count > 0)
        step(quantized, images)


def test_the_gradients_of_parts_are_those_of_the_line():
    inputs = input_codes.InputCodes(bits=4, symmetric=False, unsigned=True, step=0.1)
    parts = TrainedParts(Line(scale=np.array([2.0, 2.0, 5.0]), offset=np.array([1.0, 1.0, 0.0])),
                         activations(inputs, Recipe(), (3,)), Recipe())
    x = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    scale, offset = parts()
    (x * scale + offset).sum().backward()
    assert parts.change.grad.tolist() == [3 + 5, 15]
    assert parts.shift.grad.tolist() == [2, 1]
    parts.change.data.fill_(-7)
    parts.bound()
    assert (parts()[0] > 0).all()


@pytest.mark.parametrize("start", list(Start))
@pytest.mark.parametrize("of_activations", list(ActivationTraining))
@pytest.mark.parametrize("shift", [0.5, 0.0, -0.1, -2.0])
def test_the_codes_of_padding_are_near_zero(shift, of_activations, start, images):
    """The range includes 0 after calibration and while gradients push both of its ends beyond 0."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.AvgPool2d(3, 1, 1), nn.Conv2d(1, 2, 3, padding=(0, 1)), nn.Flatten(), nn.Linear(96, 3))
    recipe = Recipe(input_bits=4, activations=of_activations, start=start)
    quantized = behind_quantizers(net, images + shift, recipe)
    padded = [layer for layer in quantized.layers.values() if layer.geometry.padded]
    assert len(padded) == 2
    for pushed in 0.0, 1.0, -5.0:
        for layer in padded:
            inputs = layer.inputs
            inputs.offset.data += pushed
            inputs.saturation.data -= pushed
        step(quantized, images + shift)
        for layer in padded:
            inputs = layer.inputs
            assert inputs.offset <= 0 <= inputs.offset + inputs.saturation
            assert abs(layer._border() * inputs.step + inputs.offset) <= 0.51 * inputs.step
        equal_to_golden(quantized, (images + shift).half().float())


@pytest.mark.parametrize(("of_weights", "input_bits"), [
    (WeightTraining.WRPN, 3), (WeightTraining.LSQ, 3), (WeightTraining.LSQ_ODD, 3), (WeightTraining.LSQ, None)])
def test_normalisation_under_training_folds_into_rows(of_weights, input_bits, net, images):
    recipe = Recipe(weights_bits=3, input_bits=input_bits, weights=of_weights, normalise=True)
    quantized, folded = (behind_quantizers(net, images, replace(recipe, normalise=kept)) for kept in (True, False))
    assert [name for name, layer in quantized.layers.items() if layer.norm] == ["first"]
    with torch.no_grad():
        assert torch.equal(quantized.eval()(images), folded(images))
        if input_bits:
            assert torch.equal(quantized(images, lowered=True), folded(images, lowered=True))
    before = quantized.layers["first"].norm.variance.clone()
    step(quantized.train(), images)
    assert (quantized.layers["first"].norm.variance != before).all()
    if input_bits:
        equal_to_golden(quantized, images)
    layer = quantized.layers["first"]
    made = layer(images)
    assert torch.allclose(made.mean((0, 2, 3)), _wanted_mean(layer), atol=1e-4)


def test_a_batch_of_one_sample_keeps_the_running_statistics():
    """The last batch of an epoch may have one sample, whose variance would be NaN."""
    torch.manual_seed(0)
    dense = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    samples = torch.randn(40, 6)
    dense(samples)
    quantized = behind_quantizers(dense.eval(), samples, Recipe(weights_bits=4, input_bits=4, normalise=True))
    (layer,) = [layer for layer in quantized.layers.values() if layer.norm]
    before = layer.norm.mean.clone(), layer.norm.variance.clone()
    with torch.no_grad():
        wanted = quantized.eval()(samples[:1])
        assert torch.allclose(quantized.train()(samples[:1]), wanted, atol=1e-5)
    step(quantized, samples[:1])
    assert torch.equal(layer.norm.mean, before[0])
    assert torch.equal(layer.norm.variance, before[1])
    assert all(parameter.isfinite().all() for parameter in quantized.parameters())
    assert layer.weights.weight.grad.abs().max() > 0


def _wanted_mean(layer):
    return (layer.constant + layer.norm.gain * layer.norm.centre).float()


@pytest.mark.parametrize("of_weights", list(WeightTraining))
@pytest.mark.parametrize("method", list(WeightMethod))
@pytest.mark.parametrize("unrounded", [False, True])
def test_training_starts_from_the_integers_of_ptq(of_weights, method, unrounded):
    rows = np.random.default_rng(0).normal(size=(4, 30)) * np.array([[0.01], [1], [5], [0]])
    for bits in range(2, 9):
        for shared, parts in (1, None), (0, np.zeros(4, int)), (2, np.array([0, 0, 1, 1])), (3, np.array([0, 0, 0, 1])):
            recipe = Recipe(weights=of_weights, methods=Methods(weights=method, rows=shared), unrounded=unrounded)
            made = weights_of(rows, bits, recipe)
            grid = Grid.trained(of_weights, bits, True)
            codes, scales = ptq.weights(rows, grid, method, parts)
            integers, gain = (part.detach().numpy() for part in made())
            assert np.array_equal(integers, codes)
            assert np.array_equal(gain, scales)


@pytest.mark.parametrize("start", list(Start))
@pytest.mark.parametrize("of_weights", [WeightTraining.DOREFA, WeightTraining.LSQ_ODD])
def test_one_bit(of_weights, start, net, images):
    recipe = Recipe(weights_bits=1, input_bits=2, weights=of_weights, start=start)
    quantized = behind_quantizers(net, images, recipe)
    assert all(set(layer.weights()[0].unique().tolist()) <= {-1, 1} for layer in quantized.layers.values())
    equal_to_golden(quantized, images)
    narrow = behind_quantizers(net, images, Recipe(input_bits=1))
    assert all(layer.inputs.levels == 1 for layer in narrow.layers.values())
    with pytest.raises(ValueError, match="layer 'first': codes of 1 bits, but operands have 2 to 16"):
        narrow(images, lowered=True)


def test_many_bits_are_nearly_fp32(net, images):
    for bits, near in ((16, 1e-3), (24, 1e-4)):  # float32 holds 24 bits of a sum
        recipe = Recipe(weights_bits=bits, input_bits=bits, methods=Methods(
            weights=WeightMethod.UNIFORM, activations=ActivationMethod.UNIFORM))
        with torch.no_grad():
            assert (behind_quantizers(net, images, recipe)(images) - net(images)).abs().max() < near


def test_weights_or_inputs_alone(net, images):
    real = net(images)
    frozen = behind_quantizers(net, images, Recipe(weights_bits=None, frozen=True))
    assert not any(p.requires_grad for name, p in frozen.named_parameters() if "weight" in name)
    inputs_real = behind_quantizers(net, images, Recipe(input_bits=None))
    for layer in frozen.layers.values():
        layer.inputs.offset.data += 0.01
    for quantized in frozen, inputs_real:
        assert 0 < (quantized(images) - real).abs().max() < 1
        step(quantized, images)
        with pytest.raises(ValueError, match="layer 'first' keeps FP32 weights or inputs"):
            quantized(images, lowered=True)
    with torch.no_grad():
        whole = behind_quantizers(net, images, Recipe(weights_bits=None, input_bits=None))
        assert (whole(images) - real).abs().max() < 1e-5


def test_a_start_from_fp32_takes_weights_before_normalisation(net, images):
    quantized = behind_quantizers(net, images, Recipe(weights_bits=8, start=Start.FP32))
    first = quantized.layers["first"].weights
    assert torch.allclose(first.weight.data, net.first.weight.detach().flatten(1).clamp(-1, 127 / 128), atol=1e-6)
    factor = net.norm.weight.detach() / (net.norm.running_var + net.norm.eps).sqrt()
    assert torch.allclose(first()[1].float(), factor / 128)
    equal_to_golden(quantized, images)


def test_the_range_of_the_input_may_stay(net, images):
    quantized = behind_quantizers(net, images, Recipe(input_kept=True))
    layers = quantized.layers.values()
    before = [layer.inputs.saturation.item() for layer in layers]
    step(quantized, images)
    same = [layer.inputs.saturation.item() == b for layer, b in zip(layers, before, strict=True)]
    assert same == [True] + 6 * [False]
    equal_to_golden(quantized, images)


def test_layers_may_have_bits_of_their_own(net, images):
    quantized = behind_quantizers(net, images, Recipe(bits={"first": (8, 6), "last": (3, 8)}))
    formats = {layer.name: (layer.weights_format.bits, layer.input_format) for layer in quantized.layers.values()}
    assert formats["first"] == (8, Format(bits=6))
    assert formats["last"] == (3, Format(bits=8))
    assert formats["wide"] == (4, Format(bits=4))
    equal_to_golden(quantized, images)
    with pytest.raises(ValueError, match="there is no layer 'none' to give bits to; the network has first, wide"):
        behind_quantizers(net, images, Recipe(bits={"none": (8, 8)}))


@pytest.mark.parametrize("symmetric", [(False, False), (False, True), (True, True)])
def test_formats_may_leave_out_the_lowest_integer(symmetric, net, images):
    quantized = behind_quantizers(net, images, Recipe(symmetric=symmetric))
    for layer in quantized.layers.values():
        ones = isinstance(layer, QuantizedAverage)
        assert (layer.weights_format.symmetric, layer.input_format.symmetric) == (symmetric[0] or ones, symmetric[1])
    step(quantized, images)
    equal_to_golden(quantized, images)


def test_layers_answer_in_steps_where_nobody_else_reads_them(net, images):
    layers = behind_quantizers(net, images, Recipe()).layers
    after = {name: layer.after.name if layer.after else None for name, layer in layers.items()}
    assert after == {"first": None, "wide": "apart", "apart": "narrow", "narrow": None, "side": None, "mean": None,
                     "last": None}


@pytest.mark.parametrize("of_weights", list(WeightTraining))
@pytest.mark.parametrize("fold", [1.0, -2.5])
def test_gradients_of_weights(of_weights, fold):
    """Gradients of weights inside their range, and of scales, worked out by hand."""
    rows = np.array([[0.6, -0.2, 0.9, -1.3]])
    made = weights_of(rows, 3, Recipe(weights=of_weights, unrounded=True), fold)
    n, gain = made()
    factor = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    (gain.float()[:, None] * n * factor).sum().backward()
    n, gain, scale = n.detach(), gain.detach().float()[:, None], made.scale.item()
    inside = factor * gain
    if of_weights is WeightTraining.WRPN:
        want = inside * made.half
    elif of_weights is WeightTraining.DOREFA:
        t = torch.tanh(made.weight.detach())
        want = inside * made.most * (1 - t * t) / made.normaliser.float()
    else:
        want = inside / (gain / fold)
    assert torch.allclose(made.weight.grad, want, rtol=1e-5)
    moved, damping = n, 1.0
    if of_weights in (WeightTraining.LSQ, WeightTraining.LSQ_ODD):
        apart = made.grid.step  # distance of neighbouring integers
        moved = n - made.weight.detach() / (gain / fold)
        damping = (4 * made.grid.highest / apart) ** -0.5 / (apart * scale / fold) ** 2
    assert made.change.grad.item() == pytest.approx((factor * moved).sum().item() * scale * damping, rel=1e-4)


@pytest.mark.parametrize("kind", list(ActivationTraining))
def test_gradients_of_activations(kind):
    """Gradients below, inside and above the range equal the published ones."""
    seen = np.random.default_rng(0).random((5, 100)) * 4
    recipe = Recipe(activations=kind)
    made = activations(input_codes.unsigned(seen, 3, recipe, padded=False), recipe, seen.shape[1:])
    x = torch.tensor([-1.0, 0.3, 1.7, 9.0], requires_grad=True)
    step_, offset = made.step, made.offset.double()
    y = ((x - offset) / step_).float()
    q = (made.codes(y) * step_ + offset).float()
    (q * torch.tensor([1.0, 10.0, 100.0, 1000.0])).sum().backward()
    assert x.grad.tolist() == [0.0, 10.0, 100.0, 0.0]
    if kind in (ActivationTraining.HWGQ, ActivationTraining.WRPN):
        assert made.saturation.grad is None
    elif kind is ActivationTraining.LSQ:
        v = (x.detach() / made.step.detach())[1:3].double()
        error = (torch.round(v) - v) @ torch.tensor([10.0, 100.0], dtype=torch.float64) + 1000 * 7
        assert made.saturation.grad.item() == pytest.approx(error.item() / 7 * made.damping, rel=1e-4)
    else:
        assert made.saturation.grad.item() == pytest.approx(1000, rel=1e-5)
    if kind is ActivationTraining.UNIFORM:
        assert made.offset.grad.item() == pytest.approx(1001, rel=1e-5)
    else:
        assert made.offset.grad is None


def test_a_learned_step_moves_by_the_same_share_however_small_the_inputs_are():
    """Pixels of 0 to 0.01 made training diverge, since the gradient of a step is the larger, the smaller the inputs."""
    seen, moved, recipe = np.random.default_rng(0).random((5, 100)), [], Recipe(activations=ActivationTraining.LSQ)
    for unit in 0.5, 0.005, 5e-5:
        made = activations(input_codes.unsigned(seen * unit, 3, recipe, padded=False), recipe, seen.shape[1:])
        x = torch.from_numpy(seen[0] * unit).float()
        q = (made.codes((x / made.step).float()) * made.step).float()
        (q / unit).square().sum().backward()  # of a layer whose weights are the larger
        moved.append(made.saturation.grad.item() / made.saturation.item())
    assert moved == pytest.approx([moved[0]] * 3, rel=1e-3)


def test_what_cannot_be_quantized_is_named_first():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect")
            self.soft, self.norm = nn.Softplus(), nn.BatchNorm2d(2)

        def forward(self, x):
            x = self.norm(self.soft(self.conv(x)))
            return torch.sin(x)

    with pytest.raises(Unsupported) as error:
        graph_of(Odd(), (1, 6, 6))
    text = str(error.value)
    for part in ("'conv': use a padding of zeros",
                 "'soft': there is no quantised form of Softplus: use",
                 "'sin': there is no quantised form of sin"):
        assert part in text, text
    with pytest.raises(ValueError, match="17 bits: choose 1 to 16; `nnp compare`"):
        Recipe(weights_bits=17)
    with pytest.raises(ValueError, match="wrpn cannot train weights of 1 bit, .* no zero: use dorefa or lsq-odd"):
        Recipe(weights_bits=1)


def test_step_zero_is_the_ptq_network(net, images):
    """The lowered parameters of the first layer follow from PTQ's numbers alone."""
    quantized = behind_quantizers(net, images, Recipe())
    folded = quantized.plan.node("first").op
    codes, scales = ptq.weights(folded.weight.reshape(6, -1), Format(bits=4, symmetric=True))
    saturation, offset = ptq.activations(images.flatten(1).numpy(), 15, padded=True)
    want = lowering.dense(
        name="first", codes=codes, gain=scales, constant=folded.bias, weights_format=Format(bits=4, symmetric=True),
        input_format=Format(bits=4), unsigned=True, s_in=np.float32(saturation).astype(float) / 15,
        m_in=np.float32(offset).astype(float), quantize_input=True)
    got = model(quantized).layers[0]
    for name in "scale", "offset", "start":
        assert np.array_equal(getattr(got, name), getattr(want, name)), name
    assert got.weights.reshape(6, -1).tolist() == want.weights.tolist()
    assert str(quantized.arithmetic.losses["first"]).startswith("weights ")


def formula(layer, x):
    """The result of a layer, which PyTorch records operation by operation."""
    inputs, after, (integers, gain) = layer.inputs, layer.after, layer._rows()
    y = x if layer.in_steps else ((x - inputs.offset.double()) / inputs.step).float()
    if layer.geometry.dense:
        y = y.flatten(1)
    sums = layer.geometry.product(inputs.codes(y), integers, None, layer._border())
    shape = (-1, *[1] * (sums.dim() - 2))
    if layer.norm:
        gain = layer.norm.gain
        sums = nn.functional.batch_norm(sums, None, None, training=True) * layer.norm.spread.view(shape)
        constant = layer.constant + gain * layer.norm.centre
    else:
        sums = sums * inputs.step
        constant = layer.constant + gain * inputs.offset.double() * integers.flatten(1).sum(1)
    real = sums * gain.view(shape) + constant.view(shape)
    if after:
        real = (real - after.inputs.offset.double()) / after.inputs.step
    return torch.relu(real) if layer.activation is Activation.RELU else real


@pytest.mark.parametrize(("of_weights", "of_activations"), [
    ("wrpn", "uniform"), ("uniform", "pact"), ("dorefa", "hwgq"), ("lsq", "lsq"), ("lsq", "uniform"),
    ("lsq-odd", "lsq")])
@pytest.mark.parametrize("normalise", [False, True])
def test_gradients_of_layers(of_weights, of_activations, normalise, net, images):
    """Our gradients equal PyTorch's through the formula, with and without offsets, borders and groups."""
    recipe = Recipe(weights=WeightTraining(of_weights), activations=ActivationTraining(of_activations),
                    weights_bits=3, input_bits=3, normalise=normalise)
    quantized = behind_quantizers(net, images, recipe)
    if of_activations == "uniform":
        for layer in quantized.layers.values():
            layer.inputs.offset.data += 0.1
    seen = {}
    for layer in quantized.layers.values():
        layer.register_forward_pre_hook(lambda layer, x: seen.update({layer: x[0].detach()}))
    quantized(images)
    for layer, x in seen.items():
        x = x + torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) * 0.3  # some of it clips
        leaves = [x.requires_grad_(), *[p for part in (layer, layer.after) if part for p in (
            part.parameters() if part is layer else part.inputs.parameters()) if p.requires_grad]]
        made, wanted = layer(x), formula(layer, x)
        assert torch.allclose(made, wanted.float(), rtol=1e-4, atol=1e-4)
        pull = torch.randn(made.shape, generator=torch.Generator().manual_seed(1))
        by_hand, recorded = (torch.autograd.grad((y * pull).sum(), leaves, allow_unused=True, materialize_grads=True)
                             for y in (made, wanted))
        for a, b in zip(by_hand, recorded, strict=True):
            assert torch.allclose(a, b, rtol=1e-3, atol=1e-3 * b.abs().max().item() + 1e-4), layer.name


def test_infinite_results_leave_gradients_finite():
    """Binary16 ends at 65504; larger values are clipped, and their gradient moves the range."""
    y = torch.tensor([np.inf, -np.inf, 1.2], requires_grad=True)
    saturation = torch.tensor(2.0, requires_grad=True)
    CodesFunction.apply(y, saturation, 7).sum().backward()
    assert y.grad.tolist() == [0, 0, 1]
    assert saturation.grad.item() == pytest.approx(0.1)


def test_training_that_diverges_ends_with_a_sentence():
    net, losses = nn.Linear(1, 1), iter((1.0, 1.0, np.nan, 1.0))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="QAT, epoch 2: the loss is nan, since training has diverged: try a lower"):
        fit(phase="QAT", net=net, optimiser=optimiser, count=2, batch=1, epochs=3, seed=0,
            loss=lambda index: net(torch.ones(1, 1)).sum() * next(losses))


def test_weights_that_stay_leave_the_rest_to_be_trained(net, images):
    quantized = behind_quantizers(net, images, Recipe())
    layer = quantized.layers["wide"]
    layer.weights.requires_grad_(False)
    quantized(images).sum().backward()
    assert layer.weights.weight.grad is layer.weights.change.grad is None
    assert layer.constant.grad.abs().sum() > 0


@pytest.mark.parametrize(("table", "room"), [
    (WeightMethod, "net.quantize"), (ActivationMethod, "net.quantize"), (WeightTraining, "train.qat"),
    (ActivationTraining, "train.qat")])
def test_the_tables_of_methods_name_what_is_there(table, room):
    for method in table:
        assert method.load().__module__.startswith(f"concord.{room}.")
        assert method.summary
