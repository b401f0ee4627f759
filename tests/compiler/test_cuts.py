"""Where networks can be cut between machines, and which cut the compiler takes."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ImageNetworkMaker
from concord.compiler.cascade import CutCosts, PartCompiler, balanced
from concord.compiler.cuts import crossing, cuts, parts
from concord.compiler.lib.neighbours import Received
from concord.firmware.cascade import Cascade
from concord.firmware.firmware_file import load_cascade, load_firmware, save_cascade
from concord.net.cells.lstm import LSTM
from concord.net.layers.joins import Add, Concat
from concord.net.model import INPUT
from concord.spec.machine.config import preset
from concord.workflows.cascades import Wish, compile_cascade, fitted, whole

TINY = preset("tiny")


@pytest.fixture
def rng():
    return np.random.default_rng(1)


def dense(rng, name: str, inputs: int, outputs: int):
    return networks.dense(rng, TINY, name, inputs, outputs)


@pytest.fixture
def residual(rng):
    """a, then b and the sum of both, then c, which also reads the network's input through d."""
    layers = [dense(rng, "a", 4, 6), dense(rng, "b", 6, 6), Add(name="sum", inputs=6), dense(rng, "c", 6, 3)]
    return networks.model(layers, sources={"sum": ("a", "b")})


def test_one_tensor_crosses_a_cut(residual):
    assert cuts(residual) == ["a", "b", "sum"]
    first, second = parts(residual, ["sum"])
    assert [layer.name for layer in first.layers] == ["a", "b", "sum"]
    assert second.sources_of(second.layers[0]) == (INPUT,)
    assert second.inputs == first.outputs == 6


def test_several_tensors_cross_a_cut(residual):
    """Those that a later part reads cross each cut in front of it; they do not fit a model of one input."""
    assert [crossing(residual, name) for name in ("a", "b", "sum")] == [("a",), ("a", "b"), ("sum",)]
    _, second, third = parts(residual, ["a", "b"])
    assert [layer.name for layer in second.layers] == ["a", "b"]
    assert isinstance(second.layers[0], Received)
    assert [third.sources_of(layer) for layer in third.layers] == [(), (), ("a", "b"), ("sum",)]


def test_layers_that_lead_nowhere_are_left_out(rng):
    layers = [dense(rng, "a", 4, 6), dense(rng, "b", 6, 6), dense(rng, "c", 6, 3)]
    model = networks.model(layers, sources={"b": ("a",), "c": ("a",)})
    assert cuts(model) == ["a"]
    assert [layer.name for part in parts(model, ["a"]) for layer in part.layers] == ["a", "c"]


@pytest.mark.parametrize(("names", "reason"), [
    (["c"], "no layer reads the result of 'c'; cut after 'a' or 'b' or 'sum'"),
    (["x"], "has no layer 'x'"),
    (["sum", "a"], "name each layer once, in the order of the network, a, b, sum"),
])
def test_other_cuts_are_refused(residual, names, reason):
    with pytest.raises(ValueError, match=reason):
        parts(residual, names)


def test_the_input_must_not_cross(rng):
    layers = [dense(rng, "a", 4, 4), dense(rng, "b", 4, 3), Concat(name="c", sizes=(4, 3)), dense(rng, "d", 7, 2)]
    model = networks.model(layers, sources={"b": (INPUT,), "c": ("a", "b")})
    assert cuts(model) == ["b", "c"]
    with pytest.raises(ValueError, match="'b' after the cut reads the network's input"):
        parts(model, ["a"])


def test_sequences_cross_in_the_order_in_which_they_are_computed(rng):
    a, b = (networks.recurrent_layer(rng, TINY, LSTM, name, 4, 4) for name in "ab")
    assert cuts(networks.model([a, b])) == ["a"]
    assert cuts(networks.model([replace(a, reverse=True), replace(b, reverse=True)])) == ["a"]
    with pytest.raises(ValueError, match="'b' after the cut begins at the other end of the sequence than 'a'"):
        parts(networks.model([a, replace(b, reverse=True)]), ["a"])
    both = networks.model([a, b, Concat(name="c", sizes=(4, 4)), dense(rng, "d", 8, 2)], sources={"c": ("a", "b")})
    with pytest.raises(ValueError, match="some layers read every time step of 'a', and others only the last one"):
        parts(both, ["a"])


def test_the_cut_balances_the_cycles(rng):
    cutter = PartCompiler(networks.mlp(rng, TINY, [8, 8, 8, 8], block=False), [TINY] * 2)
    for cycles, cut in ((100, 1, 1), "dense0"), ((100, 100, 250), "dense1"):
        costs = dict(zip(("dense0", "dense1", "dense2"), cycles, strict=True))
        assert balanced(cutter, costs).cascade.cuts == (cut,)


def test_the_cut_counts_the_transfer(rng):
    """A word of 2 lanes takes one beat of 4 bytes; header, CRC and pauses take 7 cycles more for each tensor."""
    layers = [dense(rng, "a", 8, 8), dense(rng, "b", 8, 8), Add(name="sum", inputs=8), dense(rng, "c", 8, 8)]
    model = networks.model(layers, sources={"sum": ("a", "b")})
    cutter = PartCompiler(model, [TINY] * 2)
    costs = {"a": 100, "b": 10, "sum": 30, "c": 80}
    costs_of_cuts = CutCosts(cutter, costs)
    assert [costs_of_cuts.sending(name) for name in ("a", "b")] == [11, 22]
    assert [costs_of_cuts.interval((name,)) for name in ("a", "b", "sum")] == [131, 132, 140]
    assert balanced(cutter, costs).cascade.cuts == ("a",)


@pytest.mark.parametrize(("queue", "cycles"), [(2, 0), (1, 50)])
def test_the_cut_counts_the_wait_for_the_last_tensor(residual, queue, cycles):
    """The result of a takes 3 words; without room for them, b is computed when the second machine takes them."""
    cutter = PartCompiler(residual, [replace(TINY, net_in=queue, net_out=queue)] * 2)
    costs = {"a": 100, "b": 50, "sum": 10, "c": 10}
    costs_of_cuts = CutCosts(cutter, costs)
    assert [costs_of_cuts.waiting(name) for name in ("a", "b", "sum")] == [0, cycles, 0]


def test_a_network_that_is_too_large_for_one_machine_is_cut_where_its_parts_fit(rng, tmp_path):
    model = networks.mlp(rng, TINY, [8, 8, 32, 40], block=False)  # 1, 4 and 20 tiles
    small = replace(TINY, matrix_tiles=22)
    assert whole(model, small) is None
    assert whole(model, fitted(model, small).firmware.config)
    both = balanced(PartCompiler(model, [small] * 2), {"dense0": 1, "dense1": 99, "dense2": 1})
    assert both.cascade.cuts == ("dense1",)
    with pytest.raises(ValueError, match="(?s)does not fit 2 machines, wherever .*MatrixRf needs 24 tiles"):
        balanced(PartCompiler(model, [replace(TINY, matrix_tiles=18)] * 2), {})
    with pytest.raises(ValueError, match="can be cut at 2 points, and 4 machines need 3"):
        balanced(PartCompiler(model, [small] * 4), {})
    for parts_of, names in ((both.cascade.parts, ()), (both.cascade.parts[:1], ("dense1",)), ((), ())):
        with pytest.raises(ValueError, match=f"{len(parts_of)} parts and {len(names)} cuts are no network over"):
            replace(both.cascade, parts=parts_of, cuts=names)
    save_cascade(both.cascade, tmp_path / "both.safetensors")
    again = load_cascade(tmp_path / "both.safetensors")
    assert again.cuts == both.cascade.cuts
    assert (again.inputs, again.outputs) == (8, 40)
    assert [part.instruction_words.tolist() for part in again.parts] == [
        part.instruction_words.tolist() for part in both.cascade.parts]
    with pytest.raises(ValueError, match="it holds firmware of several machines"):
        load_firmware(tmp_path / "both.safetensors")
    save_cascade(Cascade.of(both.cascade.first), tmp_path / "one.safetensors")
    assert load_cascade(tmp_path / "one.safetensors").first.inputs == load_firmware(tmp_path / "one.safetensors").inputs


@pytest.mark.parametrize(("machines", "cut", "reason"), [
    (0, "", "1 to 8 machines"), (3, "a", "3 machines need 2 cuts, this names 1"),
    (1, "a", "one machine runs the whole network"),
])
def test_numbers_of_machines_and_cuts_that_do_not_fit(machines, cut, reason):
    with pytest.raises(ValueError, match=reason):
        Wish(machines=machines, cut=cut)


def test_machines_are_named_one_by_one_or_all_at_once(residual):
    name, compiled = compile_cascade(residual, "tiny,tiny", Wish(machines=2, cut="a"))
    assert name == "tiny"
    assert len(compiled.parts) == 2
    with pytest.raises(ValueError, match="name one machine for all, or 3 with commas"):
        compile_cascade(residual, "tiny,tiny", Wish(machines=3, cut="a,sum"))


@pytest.fixture(scope="module")
def over_two_machines():
    """The firmware of two convolutions, between which an image crosses."""
    made = ImageNetworkMaker(np.random.default_rng(4), TINY, (2, 4, 4), block=False)
    made.conv(made.conv("", 4, (1, 1)), 3, (2, 2))
    return PartCompiler(made.model(), [TINY] * 2).compiled(["conv0"]).cascade


def turned(firmware):
    """The firmware, which takes its image in another order."""
    return replace(firmware, input_layout=replace(firmware.input_layout, rows=2, columns=8))


@pytest.mark.parametrize(("change", "reason"), [
    (lambda one, other: (one, replace(other, inputs=65, input_layout=None)), "64 results are sent and 65 inputs taken"),
    (lambda one, other: (one, turned(other)), "images are sent in another order than they are taken"),
    (lambda one, other: (other, other), "results are sent and 64 inputs taken"),
    (lambda one, other: (replace(one, config=replace(TINY, message_bytes=8)), other), "bytes of a beat"),
    (lambda one, other: (one,), "1 parts and 1 cuts are no network over"),
])
def test_parts_that_do_not_fit_are_refused(over_two_machines, change, reason):
    with pytest.raises(ValueError, match=reason):
        replace(over_two_machines, parts=change(*over_two_machines.parts))
