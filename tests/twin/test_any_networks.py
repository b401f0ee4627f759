"""Twins of random networks; `nox -s twin_random` runs more of them."""

import pytest
from concord.tests.any_networks import KINDS, draw
from concord.tests.twin.campaign import outcome


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", KINDS)
def test_layers_with_the_bits_of_golden(kind, seed):
    try:
        found = outcome(draw(kind, seed))
    except ValueError as error:
        pytest.skip(f"no such network: {str(error).splitlines()[-1].strip()}")
    assert found.layers
    assert not found.wrong
