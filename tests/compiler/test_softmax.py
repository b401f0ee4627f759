"""Networks that end with a softmax: their chains, and their bits on golden and on the simulated hardware."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import image_networks, networks
from concord.compiler.lib.limits import CannotRun
from concord.compiler.network import compile_network
from concord.golden.lib.float16 import NAN
from concord.golden.mfu.softmax import real_softmax
from concord.net.layers.joins import Add, Softmax
from concord.net.model import INPUT, Model
from concord.net.model_file import load_model, save_model
from concord.net.network import forward
from concord.sim.machines.host import machine
from concord.spec.machine.config import PRESETS, Config
from concord.tests import small_networks
from concord.tests.compiled import agree, machines_agree

TINY = PRESETS["tiny_softmax"]


def ended(model: Model) -> Model:
    """A model with a softmax at its end."""
    layer = Softmax(name="softmax", inputs=model.outputs)
    return replace(model, layers=(*model.layers, layer))


def roomy(name: str) -> Config:
    return replace(PRESETS[name], softmax_words=6, **image_networks.ROOM)


def networks_of(rng, config, *, block: bool) -> dict[str, tuple[Model, tuple[int, ...]]]:
    """Networks of each way through the compiler, and the shape of their samples."""
    made = image_networks.ImageNetworkMaker(rng, config, (3, 4, 5), block=block)
    made.dense(made.conv(INPUT, 4, (3, 3)), 7)
    return {
        "dense": (networks.mlp(rng, config, [9, 11, 7], block=block), (3, 9)),
        "recurrent": (networks.recurrent(rng, config, [3, 5], block=[block], outputs=3), (2, 4, 3)),
        "hidden vector": (networks.recurrent(rng, config, [3, 5], block=[block]), (2, 4, 3)),
        "joined": (networks.branches(rng, config, config.mfu_lanes, block=block), (3, 5)),
        "image": (made.model(), (3, 60)),
        "mixed": (small_networks.keyword_spotter(rng, config, block=block), (2, 9, 5)),
    }


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", ["tiny", "vision"])
def test_bits_on_golden(name, block):
    rng, config = np.random.default_rng(1), roomy(name)
    for what, (plain, shape) in networks_of(rng, config, block=block).items():
        model, samples = ended(plain), networks.inputs(rng, *shape)
        compiled = agree(config, model, samples)
        outputs = forward(model, samples)[-1].outputs.view(np.float16).astype(float)
        np.testing.assert_allclose(outputs.sum(1), 1, atol=0.01, err_msg=what)
        assert compiled.firmware.text.count("v_softmax\nv_wr NetQ\nend_chain") == 1, what
        assert compiled.firmware.sections[-1].layer == "softmax", what


def test_the_library_agrees():
    rng = np.random.default_rng(2)
    with machine("golden", TINY) as golden, machine("library", TINY) as library:
        model = ended(networks.mlp(rng, TINY, [7, 9], block=True))
        machines_agree(golden, library, TINY, model, networks.inputs(rng, 6, 7))
        image = image_networks.ImageNetworkMaker(rng, TINY, (2, 3, 3), block=False)
        image.dense(INPUT, 5)
        machines_agree(golden, library, TINY, ended(image.model()), networks.inputs(rng, 4, 18))


def test_the_file_keeps_the_layer(tmp_path):
    model = ended(networks.mlp(np.random.default_rng(3), TINY, [5, 4], block=False))
    save_model(model, tmp_path / "m.safetensors")
    last = load_model(tmp_path / "m.safetensors").layers[-1]
    assert isinstance(last, Softmax)
    assert last.inputs == 4


def test_a_nan_reaches_all_outputs():
    layer = Softmax(name="s", inputs=3)
    assert (layer.run([np.array([[0x7E00, 0, 0]], np.uint16)], None).outputs == NAN).all()
    np.testing.assert_allclose(real_softmax(np.array([[0.0, 0.0, 800.0]])), [[0, 0, 1]])


@pytest.mark.parametrize(("config", "sentence"), [
    (PRESETS["tiny"], ("layer 'softmax' (softmax): its 14 elements need a softmax unit for 7 words, and the machine "
                       "has none: set softmax_words = 7 in a machine of your own")),
    (TINY, "its 14 elements need a softmax unit for 7 words, and the machine has one for 6: set softmax_words = 7"),
])
@pytest.mark.parametrize("images", [False, True])
def test_a_machine_without_room_refuses_it(config, sentence, images):
    rng = np.random.default_rng(4)
    made = image_networks.ImageNetworkMaker(rng, config, (2, 3, 3), block=False)
    made.dense(made.conv(INPUT, 3, (2, 2)), 14)
    model = ended(made.model() if images else networks.mlp(rng, config, [5, 14], block=False))
    with pytest.raises(CannotRun) as refused:
        compile_network(model, config)
    assert sentence in str(refused.value)
    assert refused.value.reasons[0].attribute == "softmax_words"


def test_a_softmax_stands_at_the_end():
    first = Softmax(name="s", inputs=4)
    with pytest.raises(ValueError, match=r"^layer 's' \(softmax\) stands at the end of a model"):
        networks.model([first, Add(name="sum", inputs=4)], sources={"sum": ("s", INPUT)})
    with pytest.raises(ValueError, match="stands at the end"):
        networks.model([Add(name="a", inputs=4), Add(name="b", inputs=4), first],
                       sources={"a": (INPUT, INPUT), "b": (INPUT, INPUT), "s": ("a",)})
    with pytest.raises(ValueError, match=r"^layer 's': a softmax has 1 to 4096 elements, not 5000$"):
        Softmax(name="s", inputs=5000)
