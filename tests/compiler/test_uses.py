"""What a program uses: a machine of exactly these depths runs it, and one with a word less does not."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ROOM
from concord.compiler.network import compile_network
from concord.spec.machine.config import preset

#: Attributes without which the compiler finds another program, and those of queues that the host fills and empties.
OTHERS = {"vector_rf", "accumulator_rows", "mvmq_words", "net_in", "net_out"}


def models(config):
    rng = np.random.default_rng(3)
    yield networks.mlp(rng, config, [30, 20, 7], block=False)
    yield networks.mlp(rng, config, [30, 20, 7], block=True)
    yield networks.recurrent(rng, config, [7, 9], block=[False], outputs=3)


@pytest.mark.parametrize("name", ["tiny", "serial", "wide"])
def test_the_least_depths(name):
    config = replace(preset(name), **ROOM, operand_columns=16)
    for model in models(config):
        compiled = compile_network(model, config)
        uses = {attribute: max(1, used) for attribute, used in compiled.uses.items() if attribute != "vector_rf"}
        uses["matrix_tiles"] += -uses["matrix_tiles"] % config.tile_engines
        least = replace(config, **uses)
        exact = compile_network(model, least)
        assert exact.uses == compiled.uses
        for attribute in uses.keys() - OTHERS:
            step = config.tile_engines if attribute == "matrix_tiles" else 1
            if compiled.uses[attribute] > 1:
                with pytest.raises(ValueError, match=" needs? "):
                    compile_network(model, replace(least, **{attribute: uses[attribute] - step}))


def test_what_queues_hold():
    """All gates of a recurrent layer lie in MvmQ at once; the input comes in whole native vectors."""
    config = replace(preset("wide"), **ROOM)  # N = 16, M = 4
    uses = compile_network(networks.recurrent(np.random.default_rng(0), config, [17, 5], block=[False]), config).uses
    assert uses["mvmq_words"] == 4 * 2  # four gates of five elements
    assert uses["net_in"] == 2 * 4
    assert uses["net_out"] == 2
