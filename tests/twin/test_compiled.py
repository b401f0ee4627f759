"""Functions in PyTorch, compiled: a compiler drops no rounding."""

from dataclasses import replace

import numpy as np
import pytest
from concord.golden.lib import float16
from concord.golden.mvm.quantizer import quantize_block
from concord.spec.numbers.formats import Format
from concord.tests.twin import vocabularies
from concord.tests.twin.scripts import SCRIPTS, samples
from concord.tests.twin.test_source import load
from concord.tests.twin.test_vocabulary import pairs
from concord.tests.twin.vocabularies import VOCABULARIES
from concord.twin.source.frameworks import Framework
from concord.twin.source.writer import write_twin

torch = pytest.importorskip("torch")


def chain(functions, a, b, weights):
    """Operations of every kind in one graph: sums, a product in float64, a table and a quantiser."""
    total = functions.add(functions.multiply(a, b), a)
    codes = functions.integers(functions.relu(total), lowest=0, highest=255)
    wide = functions.dense(codes[:, None].double(), weights, scale=7)
    return functions.canonical(total), functions.tanh(functions.add(wide[:, 0], b)), wide


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's compiler calls what PyTorch advises against
def test_a_compiled_chain_has_the_bits_of_golden():
    words = VOCABULARIES["torch"]()
    a, b = pairs()
    near = np.random.default_rng(0).normal(size=(2, 20_000)).astype(np.float16).view(np.uint16)
    a, b = np.concatenate([a[:20_000], near[0]]), np.concatenate([b[:20_000], near[1]])
    weights = torch.tensor([[40503.0], [12345677.0]], dtype=torch.float64)
    given = words.value(a.view(np.float16)), words.value(b.view(np.float16)), weights
    with torch.no_grad():
        found, eager = torch.compile(chain, dynamic=False)(words.functions, *given), chain(words.functions, *given)
    assert np.array_equal(words.bits(found[0]), float16.add(float16.mul(a, b), a))
    for one, other in zip(found, eager, strict=True):
        assert np.array_equal(words.bits(one), words.bits(other))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("length", [20, 28])
def test_the_last_block_has_the_same_codes(length, batch):
    """It fills neither a block nor a vector register, so that the compiled loop ends with single elements."""
    functions = vocabularies.functions("torch")

    def state(x, h):
        return functions.join(*(functions.blocks(each, size=16, bits=8, exponents=(-11, 4)) for each in (x, h)))

    torch.manual_seed(length)
    x, h = (functions.half(torch.randn(batch, size)) for size in (12, length))
    with torch.no_grad():
        assert torch.equal(torch.compile(state, dynamic=False)(x, h), state(x, h))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_floats_have_the_bits_of_golden():
    """All numbers, as floats, and two by two as the largest of a block."""
    functions = vocabularies.functions("torch")

    def both(x):
        alone = functions.floats(x[:, 0], precision=4, lowest=-15.0, highest=15.0, fraction=14)
        return alone, functions.float_blocks(x, size=2, bits=19, precision=4, exponents=(-11, 4))

    words, fmt = VOCABULARIES["torch"](), Format.floating(4, 3, e_min=4, e_max=4)
    bits = np.stack([np.arange(1 << 16), np.random.default_rng(0).permutation(1 << 16)], 1).astype(np.uint16)
    with torch.no_grad():
        found = torch.compile(both, dynamic=False)(words.value(bits.view(np.float16)))
    for codes, given, ends in ((found[0][:, None], bits[:, :1], fmt), (found[1], bits, replace(fmt, e_min=-11))):
        mantissas, exponents = quantize_block(given, ends)
        assert np.array_equal(words.array(codes), np.ldexp(mantissas, (exponents - fmt.bits + 1)[..., None]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["sounds", "turned"])
def test_a_compiled_loop_takes_sequences_of_every_length(name, tmp_path):
    """One graph has them all: it is compiled twice, for a batch of one sample and for others."""
    twin, inputs = load(write_twin(SCRIPTS[name], Framework.TORCH, tmp_path, name)).Twin(), samples(SCRIPTS[name], 5)
    few = torch._dynamo.config.patch(recompile_limit=2, fail_on_recompile_limit_hit=True)
    with torch.no_grad(), few, torch._inductor.config.patch(emulate_precision_casts=False):
        compiled = twin.compiled()
        for batch, steps in ((5, 9), (1, 9), (4, 2), (1, 3), (3, 7)):
            given = torch.from_numpy(inputs[:batch, :steps].copy())
            assert torch.equal(compiled(given), twin(given))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_twin_that_its_user_compiles_has_the_same_bits(tmp_path):
    """PyTorch drops casts to half precision then."""
    twin = load(write_twin(SCRIPTS["digits"], Framework.TORCH, tmp_path, "digits")).Twin()
    inputs = torch.from_numpy(samples(SCRIPTS["digits"], 5))
    assert not torch._inductor.config.emulate_precision_casts
    with torch.no_grad():
        assert torch.equal(torch.compile(twin)(inputs), twin(inputs))


def test_an_exported_twin_has_no_cast_that_rounds(tmp_path):
    """Whoever compiles it may drop casts, even if this process keeps them."""
    twin = load(write_twin(SCRIPTS["echo"], Framework.TORCH, tmp_path, "echo")).Twin()
    inputs = torch.from_numpy(samples(SCRIPTS["echo"], 5)).float()
    with torch.no_grad(), torch._inductor.config.patch(emulate_precision_casts=True):
        exported = torch.export.export(twin, (inputs,))
    assert "float16" not in exported.graph_module.print_readable(print_output=False)
    assert torch.equal(exported.module()(inputs), twin(inputs))
