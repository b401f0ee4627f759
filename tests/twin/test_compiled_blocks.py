"""Blocks of torch twins under torch.compile, whose loops end with elements that fill no vector register."""

import pytest


@pytest.mark.parametrize("length", [20, 28])
def test_the_last_block_is_compiled_to_the_same_codes(length):
    torch = pytest.importorskip("torch")
    from concord.twin.vocabulary.torch_functions import blocks, join

    def state(x, h):
        return join(*(blocks(values, size=16, bits=8, exponents=(-11, 4), symmetric=True) for values in (x, h)))

    torch.manual_seed(length)
    x, h = torch.randn(5, 12).half().float(), torch.randn(5, length).half().float()
    assert torch.equal(torch.compile(state, dynamic=False)(x, h), state(x, h))
