"""Attention in float64 against numpy, and in golden arithmetic against each of its steps."""

from dataclasses import replace

import numpy as np
import pytest
from concord.golden.lib.float16 import to_bits
from concord.golden.mfu.multifunction import activate
from concord.golden.mvm.quantizer import quantize_block, split
from concord.net import graph_file
from concord.net.graph import INPUT, Graph, Node
from concord.net.layers.attention import BlockAttention
from concord.net.layers.positions import ConstantPositions, PixelOffsets
from concord.net.ops.attention import MASKED, Attention
from concord.net.ops.reshape import Tokens
from concord.net.ops.scale import Offsets
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format

EIGHT = Format(bits=8, symmetric=True, e_min=-11, e_max=4)


def layer(heads: int = 3, size: int = 4, *, block: int = 8, mask: bool = True, keys: int = 5, seed: int = 0):
    """An attention of images of queries [2, 3] and of keys [1, keys], whose values have two channels more."""
    rng = np.random.default_rng(seed)
    return BlockAttention(
        name="a", queries=(heads * size, 2, 3), keys=(heads * size, 1, keys), values=(heads * (size + 2), 1, keys),
        heads=heads, weights_format=EIGHT, input_format=EIGHT, block=block,
        mask=to_bits(rng.normal(size=(heads, 6, keys))) if mask else None)


def inputs(one: BlockAttention, samples: int = 2, seed: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [to_bits(rng.normal(size=(samples, count))) for count in one.takes]


def real(bits):
    return np.asarray(bits, np.uint16).view(np.float16).astype(np.float64)


def blocks(vector, fmt, size):
    """The numbers that blocks of a vector of binary16 patterns stand for."""
    mantissas, exponents = quantize_block(split(vector, size), fmt)
    return (mantissas * 2.0 ** (exponents[:, None] - fmt.bits + 1)).reshape(-1)[:len(vector)]


def step_by_step(one: BlockAttention, x: list[np.ndarray], sample: int, head: int, position: int) -> np.ndarray:
    """The channels of one head at one position, with one number after the other."""
    queries, keys, values = (part[sample].reshape(shape[0], -1) for part, shape in zip(
        x, (one.queries, one.keys, one.values), strict=True))
    size, width = one.queries[0] // one.heads, one.values[0] // one.heads
    query, scores = blocks(queries[:, position], one.input_format, one.block), []
    for other in range(one.key_positions):
        row = np.zeros(one.keys[0], np.uint16)
        row[head * size:(head + 1) * size] = keys[head * size:(head + 1) * size, other]
        score = to_bits(blocks(row, one.weights_format, one.block) @ query)
        if one.mask is not None:
            score = to_bits(real(score) + real(one.mask[head if len(one.mask) > 1 else 0, position, other]))
        scores.append(score)
    share = real(to_bits(one.share))
    powers = to_bits(real(activate(Activation.EXP, to_bits(real(scores) - real(scores).max()))) * share)
    factor = activate(Activation.RECIPROCAL, to_bits(real(powers).sum()))
    total = [to_bits(blocks(values[head * width + c], one.weights_format, one.block) @ blocks(
        powers, one.input_format, one.block)) for c in range(width)]
    return to_bits(real(total) * real(factor))


@pytest.mark.parametrize(("keys", "share"), [(1, 127 / 128), (16, 127 / 128), (17, 127 / 256), (197, 127 / 2048)])
def test_the_largest_power_is_the_largest_mantissa_and_powers_add_up_to_16_at_most(keys, share):
    one = layer(keys=keys, mask=False)
    assert one.share == share * (one.input_format.highest / 127)
    assert one.share * keys <= 16


@pytest.mark.parametrize("options", [
    {}, {"mask": False}, {"heads": 1, "size": 20}, {"heads": 2, "size": 8}, {"heads": 2, "size": 16, "keys": 19},
    {"heads": 2, "size": 12, "keys": 8}])
def test_golden_gives_each_step(options):
    one = layer(**options)
    x = inputs(one)
    made = one.run(x, None).outputs.reshape(2, one.heads, -1, one.positions)
    for sample, head, position in ((0, 0, 0), (1, one.heads - 1, 5), (1, 0, 3)):
        np.testing.assert_array_equal(made[sample, head, :, position], step_by_step(one, x, sample, head, position))


def test_samples_do_not_depend_on_those_beside_them(monkeypatch):
    one = layer()
    x = inputs(one, 5)
    whole = one.run(x, None).outputs
    monkeypatch.setattr("concord.net.layers.attention.TOGETHER", 1)
    np.testing.assert_array_equal(one.run(x, None).outputs, whole)
    assert one.run([part[:0] for part in x], None).outputs.shape == (0, one.outputs)


def test_golden_is_near_float64():
    one = layer(heads=2, size=8, keys=9)
    x = inputs(one, 8)
    op = Attention(heads=2, mask=real(one.mask).astype(np.float32))
    exact = op.real(*(real(part).reshape(8, *shape) for part, shape in zip(
        x, (one.queries, one.keys, one.values), strict=True)), lengths=np.ones(8))
    error = real(one.run(x, None).outputs) - exact.reshape(8, -1)
    assert np.sqrt(np.mean(error**2) / np.mean(exact**2)) < 0.02
    assert error.any()


def test_masked_keys_have_no_weight():
    """Values share exponents along positions, so only later keys are changed."""
    one = layer(heads=1, keys=6)
    causal = replace(one, mask=to_bits(np.where(np.tri(6, dtype=bool), 0, MASKED)[None]))
    x = inputs(causal)
    keys = x[1].reshape(2, -1, 6).copy()
    keys[..., 3:] = to_bits(7.0)
    first, second = (causal.run(parts, None).outputs.reshape(2, -1, 6)
                     for parts in (x, [x[0], keys.reshape(2, -1), x[2]]))
    np.testing.assert_array_equal(first[..., :3], second[..., :3])
    assert (first[..., 3:] != second[..., 3:]).any()


def test_offsets():
    rng = np.random.default_rng(1)
    offset, x = to_bits(rng.normal(size=(2, 3, 4))), to_bits(rng.normal(size=(5, 24)))
    made = PixelOffsets(name="o", offset=offset).run([x], None).outputs
    np.testing.assert_array_equal(made, to_bits(real(x) + real(offset).reshape(-1)))


def test_constant_positions():
    rng = np.random.default_rng(1)
    tokens, x = rng.normal(size=(2, 3)).astype(np.float16).astype(np.float32), rng.normal(size=(5, 2, 2, 4))
    made = Tokens(tokens=tokens).real(x, lengths=np.ones(5))
    assert made.shape == (5, *Tokens(tokens=tokens).shape((2, 2, 4)))
    np.testing.assert_array_equal(made[:, :, 0, :3], np.broadcast_to(tokens, (5, 2, 3)))
    np.testing.assert_array_equal(made[:, :, 0, 3:], x.reshape(5, 2, 8))
    golden = ConstantPositions(name="t", shape=(2, 2, 4), tokens=to_bits(tokens))
    np.testing.assert_array_equal(golden.run([to_bits(x.reshape(5, -1))], None).outputs, to_bits(made.reshape(5, -1)))


@pytest.mark.parametrize(("shapes", "options", "message"), [
    ([(4, 1, 3)] * 2, {}, "it takes queries, keys and values, not 2 tensors"),
    ([(4, 1, 3), (6, 1, 3), (4, 1, 3)], {}, "do not fit: queries and keys need as many channels"),
    ([(4, 1, 3)] * 3, {"heads": 3}, "3 heads do not divide 4 channels"),
    ([(4, 1, 3)] * 3, {"mask": np.zeros((1, 3, 4), np.float32)}, "its mask is one of 3 queries and 4 keys"),
    ([(4,)] * 3, {}, r"it takes an image, but gets \[4\]")])
def test_wrong_shapes_are_named(shapes, options, message):
    with pytest.raises(ValueError, match=message):
        Attention(**options).shape(*shapes)


@pytest.mark.parametrize(("options", "message"), [
    ({"heads": 0}, "heads: a whole number of 1 or more is needed, not 0"),
    ({"heads": 2, "mask": np.zeros((3, 2, 2), np.float32)}, "it is one for 3 heads, and there are 2"),
    ({"mask": np.full((1, 2, 2), -1e9, np.float32)}, "use -32768 for keys that a query must not see")])
def test_wrong_fields_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Attention(**options)


@pytest.mark.parametrize(("changes", "message"), [
    ({"heads": 5}, r"layer 'a', queries: channels of 5 heads, rows and columns are needed, not \(12, 2, 3\)"),
    ({"keys": (12, 1, 4)}, "layer 'a': queries .* do not fit each other; export the model again"),
    ({"mask": np.zeros((2, 6, 5), np.uint16)}, r"layer 'a', mask: uint16\[3, 6, 5\] is needed")])
def test_wrong_layers_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(layer(), **changes)


def test_files_keep_both_operators(tmp_path):
    rng = np.random.default_rng(1)
    offset = rng.normal(size=(4, 1, 5)).astype(np.float32)
    mask = rng.normal(size=(2, 5, 5)).astype(np.float32)
    graph = Graph(name="g", shape=(4, 1, 5), sequence=False, axes=(0, 1, 2), nodes=(
        Node(name="o", op=Offsets(offset=offset), sources=(INPUT,)),
        Node(name="a", op=Attention(heads=2, mask=mask), sources=("o", INPUT, "o")),
        Node(name="b", op=Attention(), sources=("a", "o", INPUT))))
    graph_file.save(graph, tmp_path / "g.safetensors")
    x = rng.normal(size=(3, 4, 1, 5))
    np.testing.assert_array_equal(graph_file.load(tmp_path / "g.safetensors").run(x), graph.run(x))
