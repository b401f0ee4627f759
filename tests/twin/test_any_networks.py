"""Twins of random networks; `nox -s twin_random` runs more of them."""

import pytest
from concord.campaigns.makers.any_networks import KINDS
from concord.campaigns.twin_random import compiled, outcome


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", KINDS)
def test_layers_with_the_bits_of_golden(kind, seed):
    try:
        firmware, samples = compiled(kind, seed)
    except ValueError as error:
        pytest.skip(f"no such network: {str(error).splitlines()[-1].strip()}")
    found = outcome(firmware, samples)
    assert found.layers
    assert not found.wrong
