"""Random graphs of images on the golden machine: sums in any order, and passes that run strip by strip together."""

import numpy as np
import pytest
from concord.campaigns.makers.image_networks import ImageNetworkMaker, geometry
from concord.compiler.compilation import Compilation
from concord.net.model import INPUT, Model
from concord.spec.machine.config import Config
from concord.spec.numbers.activation import Activation
from concord.tests.compiled import agree_on_random as agree
from concord.tests.compiler.test_image_networks import NAMES, roomy, tight

ROOMY = {"initial_vrf": 4096, "addsub_vrf": 4096, "multiply_vrf": 2048, "vector_rf": 16384, "matrix_tiles": 16384,
         "instructions": 8192}
#: Seeds of networks of which some passes run strip by strip together, where VectorRf is small.
STREAMED = (5, 12, 14, 15, 16, 22)


def graph(rng: np.random.Generator, config: Config, *, block: bool) -> Model:
    """Convolutions and sums of any two of the tensors before them, at the end of which the last three are joined."""
    images, size = ImageNetworkMaker(rng, config, (3, 5, 4), block=block), config.native_dim if block else 5

    def conv(source: str) -> str:
        activation = Activation(rng.choice(["none", "relu"]))
        return images.conv(source, size, (3, 3), padding=(1, 1, 1, 1), activation=activation)

    made = [conv(INPUT), conv(INPUT)]
    for _ in range(9):
        a, b = (str(rng.choice(made)) for _ in range(2))
        match int(rng.integers(6)):
            case 0 | 1:
                made.append(conv(a))
            case 2 | 3 | 4:
                made.append(images.sum(a, b, Activation(rng.choice(["none", "relu"]))))
            case 5:
                made.append(images.conv(images.concat(a, b), size, (1, 1)))
    images.conv(images.concat(*made[-3:]), 3, (1, 1), activation=Activation.NONE)
    return images.model()


@pytest.mark.parametrize("seed", range(12, 24))
def test_sums_may_be_listed_in_any_order(seed):
    """A sum runs in the pass of its last term, which may be long before it in the list."""
    rng = np.random.default_rng(seed)
    config = roomy(NAMES[seed % len(NAMES)], **ROOMY)
    agree(config, graph(rng, config, block=bool(seed // len(NAMES) % 2)))


@pytest.mark.parametrize("seed", STREAMED)
def test_strips_of_any_windows(seed, monkeypatch):
    """Strips may read nothing but padding; rows between them are taken from the host all the same."""
    streams = []
    emit = Compilation._emit_stream
    monkeypatch.setattr(Compilation, "_emit_stream", lambda self, one: (streams.append(one), emit(self, one)))
    rng = np.random.default_rng(seed)
    config = roomy(NAMES[seed % len(NAMES)], **ROOMY)
    shape = 3, int(rng.integers(8, 20)), int(rng.integers(3, 7))
    images, at = ImageNetworkMaker(rng, config, shape, block=bool(seed % 2)), INPUT
    while images.shapes[at][1] > 1 and len(images.layers) < 3:
        size, options = geometry(rng, images.shapes[at], 3)
        at = images.conv(at, int(rng.integers(1, 20)), size, **options)
    images.dense(at, 3)
    tight(config, images.model(), "vector_rf", "VectorRf", 0.9)
    assert streams
