"""Twins of random networks; `nox -s twin_random` runs more of them."""

import pytest
from concord.campaigns import twin_random
from concord.campaigns.makers.any_networks import KINDS
from concord.campaigns.twin_random import compiled, outcome

#: Two networks of each kind that its machine can hold.
SEEDS = {"dense": (0, 1), "recurrent": (0, 1), "both directions": (0, 1), "images": (0, 3), "mixed": (1, 2)}


@pytest.mark.parametrize(("kind", "seed"), [(kind, seed) for kind in KINDS for seed in SEEDS[kind]])
def test_layers_with_the_bits_of_golden(kind, seed):
    found = outcome(*compiled(kind, seed))
    assert found.layers
    assert not found.wrong


@pytest.mark.parametrize(("seed", "code"), [("0", 0), ("1", 1)])
def test_a_kind_without_a_network_fails(seed, code, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["twin_random", "--networks", "1", "--seed", seed, "--kinds", "images"])
    with pytest.raises(SystemExit) as ended:
        twin_random.main()
    assert ended.value.code == code
    assert ("images: the machine can hold none of the networks" in capsys.readouterr().out) == bool(code)
