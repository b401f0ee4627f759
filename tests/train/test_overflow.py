"""The overflow predictor: ranges follow the golden count, and do not alternate for ever."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from concord.datasets import dataset
from concord.datasets.dataset import DATA
from concord.datasets.dataset import images as images_of
from concord.golden.mvm.overflow import Events
from concord.net.layer_overflow import Count, Widths, dry_run
from concord.net.model import Model, Provenance
from concord.net.quantize.recipe import Methods, Recipe, WeightTraining
from concord.nnp.main import app
from concord.spec.numbers.formats import Format
from concord.train.lib import export
from concord.train.network.quantized_network import QuantizedNetwork, behind_quantizers
from concord.train.overflow.factors import MARGIN, Factors, ShrinkRoom
from concord.train.overflow.options import OverflowOptions
from concord.train.overflow.predictor import Predictor, settled
from concord.train.overflow.predictor import kind as kind_of
from concord.train.overflow.products import LayerProduct
from concord.train.overflow.record import STEPS, NetworkKind, OverflowRecord, ProductRecord, RangeSteps
from concord.train.qat.weight_methods import DoReFa, Wrpn
from concord.train.runs import mlp
from typer.testing import CliRunner

WIDE = Widths(sum_bits=8, product_bits=64, output_bits=64)
EIGHT = Format(bits=8, symmetric=True)
NOWHERE = Provenance(command="test", method="random", seed=0, fp32_accuracy=0, quantized_accuracy=0, golden_accuracy=0)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def images():
    return dataset.load("fashion-mnist").first(96)


def quantized(images, **options) -> QuantizedNetwork:
    torch.manual_seed(0)
    recipe = Recipe(weights_bits=8, input_bits=8, symmetric=(True, True), **options)
    return behind_quantizers(mlp.Float((784, 12, 10)), export.floats(images.inputs), recipe)


def predictor(net, images, widths, steps=STEPS[NetworkKind.DNN]) -> Predictor:
    return Predictor(net, export.floats(images.inputs), widths, steps)


def product(net, name="hidden1") -> LayerProduct:
    """A product whose rows have ranges of their own."""
    return LayerProduct(name, net.layers[name], rows=True)


def lowered(net) -> Model:
    """The model that golden runs."""
    layers, sources = net.lower()
    none = np.zeros(0, np.uint8)
    return Model(name="m", data="", preprocessing="", classes=(), layers=layers, sources=sources, provenance=NOWHERE,
                 fp32_predictions=none, quantized_predictions=none)


def steps_in(weights) -> torch.Tensor:
    """Weights in quantisation steps, before rounding."""
    with torch.no_grad():
        match weights:
            case Wrpn():
                return weights.weight * 128
            case DoReFa():
                return torch.tanh(weights.weight) / np.tanh(1) * 255
        return weights.weight / (weights.unit * (1 + weights.change))[:, None]


def seen(partial, total=0, *, product=0, events=None, additions=1000) -> Count:
    """A count in which 8-bit sums reached these magnitudes."""
    partial, total, product = (np.atleast_1d(np.asarray(values, np.int64)) for values in (partial, total, product))
    partial, total, product = np.broadcast_arrays(partial, total, product)
    rows = ((partial > 127) | (total > 127)).astype(np.int64) if events is None else np.asarray(events)
    return Count(events=Events(partial=int(rows.sum())), additions=additions * len(rows), rows=rows, partial=partial,
                 total=total, product=product)


def room(rows=1, parameters=0.0, inputs=0.0, lowered=False) -> ShrinkRoom:
    """The room to shrink ranges to these shares."""
    return ShrinkRoom(parameters=np.full(rows, max(parameters, 1e-9)), inputs=max(inputs, 1e-9), lowered=lowered)


def test_the_first_factor_is_the_magnitude_and_the_next_follow_the_share():
    factors, steps = Factors(ranges=2), RangeSteps(inputs=0.0, least=0.01, step=0.25)
    parameters, inputs = factors.change(seen([511, 100]), WIDE, room(2), steps)
    assert parameters.tolist() == pytest.approx([4 * 1.01, 1])  # 512 / 128
    assert inputs == 1
    parameters, _ = factors.change(seen([129, 100], events=[160, 0]), WIDE, room(2), steps)
    assert parameters.tolist() == pytest.approx([1 + 0.25 * 0.4, 1])  # sqrt(160 / 1000)
    parameters, _ = factors.change(seen([129, 100], events=[1, 0], additions=10**8), WIDE, room(2), steps)
    assert parameters[0] == pytest.approx(130 / 128 * 1.01)
    assert factors.change(seen([127, 100]), WIDE, room(2), steps) is None
    first = Factors(ranges=1).change(seen(129, events=[160]), WIDE, room(), steps)
    assert first[0][0] == pytest.approx(130 / 128 * 1.01)
    assert factors.parameters[0] == pytest.approx(4 * 1.01 * 1.1 * 130 / 128 * 1.01)


@pytest.mark.parametrize(("share", "wanted"), [(0.0, (4, 1)), (0.5, (2, 2)), (1.0, (1, 4))])
def test_signed_codes_share_the_factor(share, wanted):
    steps = RangeSteps(inputs=share, least=1e-9)
    parameters, inputs = Factors(ranges=1).change(seen(511), WIDE, room(), steps)
    assert (parameters[0], inputs) == pytest.approx(wanted)


def test_lowered_codes_leave_partial_sums_to_the_parameters():
    steps = RangeSteps(inputs=1.0, least=1e-9)
    parameters, inputs = Factors(ranges=1).change(seen(511, 100), WIDE, room(lowered=True), steps)
    assert (parameters[0], inputs) == pytest.approx((4, 1))
    parameters, inputs = Factors(ranges=2).change(seen([511, 20], [1023, 1023]), WIDE, room(2, lowered=True), steps)
    assert parameters.tolist() == pytest.approx([4, 1])
    assert inputs == pytest.approx(8)  # the first row needs 8 / 4, the second 8


def test_products_and_outputs_have_widths_of_their_own():
    steps = RangeSteps(inputs=0.0, least=1e-9)
    narrow = Widths(sum_bits=8, product_bits=5, output_bits=6)
    for made, factor in ((seen(0, product=31, events=[1]), 2), (seen(0, 127, events=[1]), 4)):
        parameters, _ = Factors(ranges=1).change(made, narrow, room(), steps)
        assert parameters[0] == pytest.approx(factor)


def test_one_factor_for_the_matrix():
    steps = RangeSteps(inputs=0.0, least=1e-9)
    factors = Factors(ranges=2, shared=2)
    made = factors.change(seen([511, 3, 9, 100]), WIDE, room(2), steps)
    assert made[0].tolist() == pytest.approx([4, 1])
    made = factors.change(seen([3, 129, 9, 3], events=[0, 320, 0, 0]), WIDE, room(2), replace(steps, step=0.5))
    assert made[0].tolist() == pytest.approx([1 + 0.5 * 0.4, 1])  # 320 of the 2000 sums of both rows
    factors.begin()
    # Shrinking is limited by the row that needs the largest range.
    factors = Factors(ranges=1, shared=2)
    made = factors.change(seen([3, 100]), WIDE, room(1), steps)
    assert made is None


def test_a_threshold_tolerates_events_and_shrinks_nothing():
    factors = Factors(ranges=1)
    assert factors.change(seen(511, events=[3]), WIDE, room(), RangeSteps(threshold=3)) is None
    assert Factors(ranges=2).change(seen([511, 0], events=[3, 0]), WIDE, room(2), RangeSteps(threshold=3)) is None
    assert factors.change(seen(511, events=[4]), WIDE, room(), RangeSteps(threshold=3)) is not None


def test_ranges_shrink_where_results_stay_far_inside():
    factors, steps = Factors(ranges=2), RangeSteps(shrink=0.25, headroom=1.0)
    parameters, inputs = factors.change(seen([31, 64]), WIDE, room(2, inputs=1), steps)
    assert parameters.tolist() == pytest.approx([0.25 * 2**0.5, 1])  # 32 / 128 and half a bit; 64 is too close
    assert inputs == 1
    assert Factors(ranges=1).change(seen(0), WIDE, room(inputs=1), steps)[0][0] == 0.25
    # No further value clips.
    assert Factors(ranges=1).change(seen(0), WIDE, room(parameters=0.8, inputs=1), steps)[0][0] == 0.8
    assert Factors(ranges=1).change(seen(0), WIDE, room(parameters=0.97, inputs=1), steps) is None
    parameters, inputs = Factors(ranges=1).change(seen(0), WIDE, room(parameters=0.5, inputs=0.1), steps)
    assert (parameters[0], inputs) == (0.5, 0.5)
    assert Factors(ranges=2).change(seen([0, 100]), WIDE, room(2, parameters=1, inputs=0.1), steps) is None
    nothing = ShrinkRoom(parameters=np.zeros(1), inputs=0.0, lowered=False)
    assert Factors(ranges=1).change(seen(0), WIDE, nothing, steps) is None


def test_what_overflowed_is_never_reached_again():
    factors, steps = Factors(ranges=1), RangeSteps(inputs=0.0, shrink=0.01)
    factors.change(seen(511), WIDE, room(), steps)
    assert factors.change(seen(0), WIDE, room(), steps) is None  # the range has grown in this round of the predictor
    factors.begin()
    factors.change(seen(0), WIDE, room(inputs=1), steps)
    assert factors.parameters[0] == pytest.approx(MARGIN)
    factors.begin()
    assert factors.change(seen(0), WIDE, room(inputs=1), steps) is None


@pytest.mark.parametrize("seed", range(5))
def test_an_adversary_cannot_make_ranges_alternate_for_ever(seed):
    """Weights change between rounds of training such that the smallest safe range varies within 1..50."""
    rng, steps = np.random.default_rng(seed), RangeSteps(inputs=0.3)
    factors, turns, last, shrunk_at_the_end, ended = Factors(ranges=1), 0, None, 0, 0
    for epoch in range(3000):
        factors.begin()
        safe = 50 ** rng.random() if rng.random() < 0.5 else 1.0
        for _ in range(steps.rounds):
            ratio = safe / (factors.parameters[0] * factors.inputs)
            made = seen(int(np.ceil(127 * ratio)) if ratio > 1 else int(127 * ratio * 0.4))
            change = factors.change(made, WIDE, room(), steps)
            if change is None:
                ended += 1
                break
            direction = change[0][0] * change[1] > 1
            turns += last is not None and direction != last
            last = direction
            shrunk_at_the_end += epoch > 2000 and not direction
    assert turns <= 2 * np.log(51 * 1.1) / np.log(MARGIN)
    assert shrunk_at_the_end == 0
    assert ended == 3000


@pytest.mark.parametrize("kind", WeightTraining)
def test_factors_change_steps_and_not_what_they_stand_for(kind, images):
    net = quantized(images, weights=kind)
    layer, ranged = net.layers["hidden1"], product(net)
    gain, saturation = layer.weights()[1].detach(), layer.inputs.saturation.item()
    steps, integers, used = steps_in(layer.weights), layer.weights()[0], ranged.used()
    factor = np.linspace(1, 4, 12)
    ranged.enlarge(factor, 1.5)
    assert ranged.grown == pytest.approx(factor)
    torch.testing.assert_close(layer.weights()[1].detach(), gain * torch.from_numpy(factor))
    torch.testing.assert_close(steps_in(layer.weights), (steps / torch.from_numpy(factor)[:, None]).to(torch.float64),
                               check_dtype=False, rtol=1e-5, atol=1e-5)
    assert ranged.used() == pytest.approx(used / factor, rel=1e-5)
    assert layer.inputs.saturation.item() == pytest.approx(1.5 * saturation)
    ranged.enlarge(1 / factor, 1.0)
    assert (layer.weights()[0] != integers).float().mean() < 1e-3  # only ties may differ


@pytest.mark.parametrize("sum_bits", [16, 13])
def test_no_event_is_left_on_the_calibration_set(sum_bits, images):
    net, widths = quantized(images), Widths(sum_bits=sum_bits)
    made = predictor(net, images, widths).run()
    assert made.events == 0
    assert made.products[0].before > 0
    assert made.products[0].parameters[1] > made.products[0].parameters[0] > 1
    assert made.products[0].bits == sum_bits  # all bits of the accumulator are used
    assert made.products[0].rounds >= 1
    uses = dry_run(lowered(net), images.inputs, None, widths)
    assert [use.count.events for use in uses] == [Events(), Events()]
    assert [use.count.bits for use in uses] == [layer.bits for layer in made.products]


def test_what_has_grown_shrinks_when_weights_have_become_smaller(images):
    net = quantized(images)
    made = predictor(net, images, Widths(sum_bits=16))
    grown = made.run().products[0]
    with torch.no_grad():
        net.layers["hidden1"].weights.weight.mul_(0.1)
    shrunk = made.run().products[0]
    assert shrunk.parameters[1] < grown.parameters[1]
    assert shrunk.parameters[0] >= 1
    assert shrunk.rounds > grown.rounds
    assert shrunk.before == shrunk.after == 0


def test_the_predictor_counts_as_golden_does(images):
    net, widths = quantized(images), Widths(sum_bits=15, product_bits=13, output_bits=14, lanes=4)
    made, few = predictor(net, images, widths), images.first(7)
    for use in dry_run(lowered(net), images.inputs, None, widths):
        assert made.count(use.product.name).events == use.count.events
    (use, _) = dry_run(lowered(net), few.inputs, None, widths)
    assert made.count("hidden1", export.floats(few.inputs)).events == use.count.events
    assert use.count.events.product > 0


class Convolutions(torch.nn.Module):
    """Convolutions of one group, of two groups, and depthwise, with borders and a stride.

    There is no relu before the second one, so that its inputs begin below 0 and its border is not code 0.
    """

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.apart = torch.nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=4)
        self.pairs, self.last = torch.nn.Conv2d(8, 4, 1, groups=2), torch.nn.Linear(4 * 16, 3)

    def forward(self, x):
        x = torch.relu(self.pairs(torch.relu(self.apart(self.first(x)))))
        return self.last(x.flatten(1))


@pytest.mark.parametrize("kind", WeightTraining)
def test_convolutions_overflow_as_golden_counts_until_they_do_not(kind):
    torch.manual_seed(0)
    x, widths = torch.rand(70, 1, 8, 8).half().float(), Widths(sum_bits=13, lanes=2)
    inputs = export.patterns(x.flatten(1))
    net = behind_quantizers(Convolutions(), x, Recipe(weights_bits=8, input_bits=8, weights=kind))
    made = Predictor(net, x, widths, STEPS[NetworkKind.CNN])
    made.run()
    assert net.layers["apart"]._border() > 0
    assert made.record.events == 0
    assert all(layer.before > 0 for layer in made.record.products[:2])
    assert kind_of(net) is NetworkKind.CNN
    uses = dry_run(lowered(net), inputs, None, widths)
    assert [use.count.bits for use in uses] == [layer.bits for layer in made.record.products]
    for name, layer in net.layers.items():
        product(net, name).enlarge(np.full(len(layer.constant), 0.5), 1.0)
    for use in dry_run(lowered(net), inputs, None, widths):
        found = made.count(use.product.name)
        assert found.events == use.count.events
        assert found.rows.tolist() == use.count.rows.tolist()
    assert use.count.additions == 70 * 3 * (64 // 2 + 1)


def test_averages_keep_their_ones_and_get_wider_inputs():
    torch.manual_seed(0)
    x = (torch.rand(20, 2, 8, 8) / 2 + 0.5).half().float()
    averages = torch.nn.Sequential(torch.nn.AvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(8, 3))
    net, widths = behind_quantizers(averages, x, Recipe(weights_bits=4, input_bits=8)), OverflowOptions(accumulator=12)
    step = net.layers["0"].inputs.step.item()
    made = settled(net, x, widths)
    first = made.record.products[0]
    assert first.before > 0
    assert made.record.events == 0
    assert first.parameters == (1.0, 1.0)
    assert net.layers["0"].inputs.step.item() == pytest.approx(first.inputs * step)
    assert (net.layers["0"].weights()[0] == 1).all()
    uses = dry_run(lowered(net), export.patterns(x.flatten(1)), None, widths.widths)
    assert [use.count.number for use in uses] == [0, 0]
    with pytest.raises(ValueError, match="layer '0' adds 16 codes of 8 bits, which 11 bits do not hold: use a wider"):
        settled(behind_quantizers(averages, x, Recipe(weights_bits=4, input_bits=8)), x,
                OverflowOptions(accumulator=11))


def test_too_large_ranges_shrink_until_the_steps_are_used(images):
    net = quantized(images)
    for name, layer in net.layers.items():
        product(net, name).enlarge(np.full(len(layer.constant), 8.0), 3.0)
    made = predictor(net, images, Widths(sum_bits=32)).run()
    for layer, record in zip(net.layers.values(), made.products, strict=True):
        assert 1 / 8 >= record.parameters[0] > 1 / 11
        assert record.inputs == pytest.approx(1 / 3, rel=0.2)
        assert layer.weights()[0].abs().amax(1).min() >= 120


def test_training_in_a_narrow_accumulator_from_end_to_end(tmp_path, monkeypatch):
    folder, told, runs, run = DATA / "fashion-mnist", [], [], Predictor.run
    monkeypatch.setattr(Predictor, "run", lambda predictor: runs.append(run(predictor)) or runs[-1])
    for name in (f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")):
        (tmp_path / name).symlink_to(folder / name.replace("train", "t10k"))
    options = {"folder": tmp_path, "hidden": (16,), "epochs": (2, 1, 1), "samples": 1500, "weights_format": EIGHT}
    made = mlp.train_mlp(tmp_path / "m", overflow=OverflowOptions(accumulator=15),
                         progress=lambda *call: told.append(call), **options)
    widths, calibration = Widths(sum_bits=15), images_of(folder, "t10k").inputs[:512]
    assert [use.count.events for use in dry_run(made, calibration, None, widths)] == [Events(), Events()]
    assert "; ranges for sums of 15 bits (hidden1: parameters x " in made.provenance.method
    assert ", 0 events, 15 bits; output: " in made.provenance.method
    assert [call[0] for call in told if call[0].startswith("overflow")] == ["overflow hidden1:", "overflow output:"]
    assert made.provenance.golden_accuracy > 0.6
    assert len(runs) == 3  # after PTQ and after each epoch
    assert str(runs[-1]) in made.provenance.method
    free = mlp.train_mlp(tmp_path / "free", **options)
    assert dry_run(free, calibration, None, widths)[0].count.number > 0
    assert "ranges for" not in free.provenance.method
    with pytest.raises(ValueError, match="--accumulator is for integers, whose sums can overflow: leave it out"):
        mlp.train_mlp(tmp_path / "m", overflow=OverflowOptions(accumulator=16), block=16)


@pytest.mark.parametrize(("words", "sentence"), [
    (("mlp", "--accumulator", "65"), "--accumulator 65 is no width: storage has 1 to 64 bits"),
    (("image", "--accumulator", "0"), "--accumulator 0 is no width: storage has 1 to 64 bits"),
    (("mlp", "--arithmetic", "bfp-lazy", "--accumulator", "16"),
     "--activations, --stages and the options of overflows are for")])
def test_the_command_refuses(words, sentence):
    result = CliRunner().invoke(app, ["train", *words])
    assert result.exit_code == 2
    assert sentence in result.stderr


@pytest.mark.parametrize(("kind", "power"), [(WeightTraining.WRPN, 0), (WeightTraining.UNIFORM, 1)])
def test_gradients_move_integers_as_before(kind, power, images):
    """Relative to the range, gradients are unchanged; in real units they follow the step."""
    one, other = (quantized(images, weights=kind) for _ in range(2))
    x, weights = export.floats(images.inputs), torch.randn(96, 10, generator=torch.Generator().manual_seed(1))
    predictor(one, images, Widths(sum_bits=40))  # attaches its state, and finds nothing to change
    made = predictor(other, images, Widths(sum_bits=40))
    with torch.no_grad():  # integers are even, so that they can be halved, and not at the ends of their range
        for net in one, other:
            layer = net.layers["hidden1"].weights
            layer.weight.mul_((4 * torch.round(layer()[0] / 4).clamp(-28, 28)) / steps_in(layer))
    factor = np.full(12, 2.0)
    made.factors["hidden1"].parameters *= factor
    product(other).enlarge(factor, 1.0)
    for net in one, other:
        net(x).mul(weights).sum().backward()
    before, after = (net.layers["hidden1"].weights.weight.grad for net in (one, other))
    assert before.abs().max() > 0
    torch.testing.assert_close(after, before * 2**power, rtol=1e-4, atol=1e-5 * float(before.abs().max()))


def test_a_layer_that_cannot_be_mended_is_named(images):
    steps = RangeSteps(rounds=1)
    with pytest.raises(ValueError, match=r"layer 'hidden1' still overflows \d+ times in 12 bits after 1 rounds"):
        predictor(quantized(images), images, Widths(sum_bits=12), steps).run()
    x = torch.rand(4, 1, 8, 8)
    real = behind_quantizers(Convolutions(), x, Recipe(input_bits=None))
    with pytest.raises(ValueError, match="layer 'first' keeps FP32 weights or inputs, so it has no sums to keep in 12"):
        Predictor(real, x, Widths(sum_bits=12), steps)


def test_defaults_of_each_kind_can_be_overridden():
    assert set(STEPS) == set(NetworkKind)
    assert replace(STEPS[NetworkKind.GCN], threshold=5).inputs == STEPS[NetworkKind.GCN].inputs
    for name, value in (("threshold", -1), ("inputs", 1.5), ("least", 0.0), ("step", 0.001), ("headroom", 0.0),
                        ("shrink", 1.1), ("rounds", 0), ("weights_factor", 0.5)):
        with pytest.raises(ValueError, match=f"{name} = {value} must be "):
            RangeSteps(**{name: value})


def test_the_record_in_words():
    layer = ProductRecord(name="hidden1", parameters=(1.0, 53.71), inputs=1.44, rounds=2, before=9, after=1, bits=16)
    made = OverflowRecord(widths=Widths(sum_bits=16),
                          products=(layer, replace(layer, name="output", parameters=(2.0, 2.0))))
    assert made.events == 2
    assert str(made) == (
        "ranges for sums of 16 bits (hidden1: parameters x 1 to 53.7, inputs x 1.44 in 2 rounds, 1 events, 16 bits; "
        "output: parameters x 2, inputs x 1.44 in 2 rounds, 1 events, 16 bits)"
    )


def test_one_range_for_the_matrix_where_it_has_one_scale(images):
    net = quantized(images, methods=Methods(rows=0))
    made = settled(net, export.floats(images.inputs), OverflowOptions(accumulator=16))
    (first, _), weights = made.record.products, net.layers["hidden1"].weights
    assert (made.record.events, made.factors["hidden1"].shared) == (0, 12)
    assert first.parameters[0] == first.parameters[1] > 1
    assert len(set(weights.scale.tolist())) == 1


def test_convolutions_in_coarse_steps_are_trained_more_slowly(images):
    made = predictor(quantized(images), images, Widths(sum_bits=40))
    made.factors["hidden1"].parameters *= 1e6
    assert made.rate(0.01) == 0.01  # dense layers
    x = torch.rand(4, 1, 8, 8)
    made = Predictor(behind_quantizers(Convolutions(), x, Recipe()), x, Widths(sum_bits=40), RangeSteps())
    for grown, rate in (1.0, 0.01), (9.0, 0.01), (11.0, 0.003):
        for found in made.factors.values():
            found.parameters[:] = grown
        assert made.rate(0.01) == rate
