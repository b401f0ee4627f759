"""Twins in PyTorch on another device: everything that they compute with lies there.

No accelerator is needed: the twins move to `meta`, a device without numbers, and `OneDevice` refuses operations on
tensors of the CPU.
"""

import ast
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")

from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ROOM, ImageNetworkMaker
from concord.campaigns.twin_programs import firmware_of
from concord.compiler.network import compile_network
from concord.net.cells.registry import CELLS
from concord.net.layers.joins import Softmax
from concord.net.model import INPUT
from concord.sim.stimulus.programs import random_program
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import PRESETS
from concord.spec.numbers.formats import Format
from concord.tests.compiler import test_attention
from concord.tests.twin.one_device import OneDevice
from concord.tests.twin.recovered import golden
from concord.tests.twin.scripts import SCRIPTS
from concord.tests.twin.test_reductions import VECTOR, model
from concord.tests.twin.test_source import load
from concord.tests.twin.test_unquantized import carrying, with_reals
from concord.twin.flow.flow_of import flow_of
from concord.twin.generic.generic import generic
from concord.twin.recovery.recover import recover
from concord.twin.source.frameworks import CURVES, Framework
from concord.twin.source.trained import roundings
from concord.twin.source.vocabulary import vocabulary
from concord.twin.source.writer import source, write_twin
from torch.utils._pytree import tree_leaves

TINY = PRESETS["tiny"]
ROOMY = replace(PRESETS["vision"], **ROOM)
FLOATS = replace(TINY, weights=Format.floating(3, 2, e_min=-3, e_max=3), multipliers=0,
                 activations=Format.floating(3, 3, e_min=-2, e_max=2), acc_int=20)


def lstm(block: bool):
    return networks.recurrent(np.random.default_rng(0), ROOMY, [3, 5], block=[block], outputs=4, cell=CELLS["lstm"])


def pictures(block: bool):
    """Windows, groups, maxima and averages."""
    images = ImageNetworkMaker(np.random.default_rng(0), ROOMY, (3, 8, 8), block=block)
    at = images.conv(INPUT, 8, padding=(1, 1, 1, 1))
    at = images.sum(at, images.conv(at, 8, padding=(1, 1, 1, 1), groups=8))
    at = images.maximum(at, (3, 3), stride=(2, 2), padding=(1, 1, 1, 1))
    images.dense(images.average(at, (4, 4)), 10)
    return images.model()


def images_as_results():
    images = ImageNetworkMaker(np.random.default_rng(0), ROOMY, (3, 4, 5), block=False)
    images.conv(INPUT, 16, (2, 2))
    return images.model()


def classes():
    model = networks.mlp(np.random.default_rng(1), PRESETS["tiny_softmax"], [9, 12, 7], block=False)
    return replace(model, layers=(*model.layers, Softmax(name="softmax", inputs=7)))


def transformer():
    return test_attention.model_of(test_attention.attention(2, 8, masks=2), test_attention.VISION)


def firmware(model, config=ROOMY):
    return compile_network(model, config).firmware


@cache
def script_of(name: str):
    """The script of one of TWINS."""
    return TWINS[name]()


def without_quantizers(model, config):
    return recover(carrying(with_reals(np.random.default_rng(1), model), config), unquantized=True)


def program(config, seed: int):
    """A random program word by word, with its final memories."""
    case = random_program(config, np.random.default_rng([77, seed]))
    return generic(flow_of(firmware_of(case)), [Mem.VECTOR_RF, Mem.MATRIX_RF] if config.vector_rf else [])


NETWORKS = {
    "LSTM in integers": lambda: firmware(lstm(False)),
    "LSTM in blocks": lambda: firmware(lstm(True)),
    "images in integers": lambda: firmware(pictures(False)),
    "images in blocks": lambda: firmware(pictures(True)),
    "images as results": lambda: firmware(images_as_results()),
    "softmax": lambda: firmware(classes(), PRESETS["tiny_softmax"]),
    "softmax inside": lambda: firmware(model("softmax"), VECTOR),
    "normalisation": lambda: firmware(model("layer norm"), VECTOR),
    "attention": lambda: firmware(transformer(), test_attention.VISION),
}
TWINS = {
    **{f"script {name}": lambda script=script: script for name, script in SCRIPTS.items()},
    **{name: lambda make=make: recover(make()) for name, make in NETWORKS.items()},
    "LSTM without quantisers": lambda: without_quantizers(lstm(False), ROOMY),
    "images without quantisers": lambda: without_quantizers(pictures(False), ROOMY),
    "softmax inside without quantisers": lambda: without_quantizers(model("softmax"), VECTOR),
    "softmax without quantisers": lambda: without_quantizers(classes(), PRESETS["tiny_softmax"]),
    **{f"program {seed} word by word": lambda seed=seed: program(
        replace(PRESETS["tiny_softmax"], acc_int=20), seed) for seed in range(2)},
    "program with floats word by word": lambda: program(FLOATS, 0),
    "program with reductions word by word": lambda: program(PRESETS["tiny_vector"], 0),
}
#: Functions that no source here has: they make parameters, or Python has a sign for them, or they clip a number.
OTHERS = {"Rounded", "train", "_table", "step", "clip"}


def moved(path):
    """The twin of a file on `meta`, and inputs for it."""
    module = load(path)
    return module.Twin().to("meta"), torch.zeros(2, *(4 if size is None else size for size in module.INPUTS),
                                                 device="meta")


def devices(graph) -> set[str]:
    """Types of the devices of all values in a graph and in its loops."""
    nodes = [node for part in graph.modules() if isinstance(part, torch.fx.GraphModule) for node in part.graph.nodes]
    return {value.device.type for node in nodes for value in tree_leaves(node.meta.get("example_value"))
            if isinstance(value, torch.Tensor)}


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_computes_on_the_device_that_it_is_on(name, tmp_path):
    twin, inputs = moved(write_twin(script_of(name), Framework.TORCH, tmp_path, "twin"))
    with OneDevice("meta") as device:
        results = twin(inputs)
    assert device.operations
    for each in results if isinstance(results, tuple) else (results,):
        assert (each.device.type, each.shape[0]) == ("meta", 2)


def test_these_twins_have_every_function_of_the_vocabulary():
    texts = [source(script_of(name), Framework.TORCH, "twin") for name in TWINS]
    found = {node.name for text in texts for node in ast.parse(text).body
             if isinstance(node, ast.FunctionDef | ast.ClassDef)} | set(CURVES)
    for unquantized in False, True:
        assert vocabulary(Framework.TORCH, unquantized=unquantized).names <= found | OTHERS


@pytest.mark.parametrize("first", ["move", "trainable"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_twin_is_trained_on_the_device_that_it_is_on(name, first, tmp_path):
    made = NETWORKS[name]()
    path = write_twin(script_of(name), Framework.TORCH, tmp_path, "twin", roundings(script_of(name), made))
    twin, inputs = moved(path)
    if first == "trainable":
        twin = load(path).Twin().trainable().to("meta")
    with OneDevice("meta"):
        if first == "move":
            twin.trainable()
        twin(inputs).sum().backward()
    parameters = list(twin.parameters())
    assert parameters
    assert {each.grad.device.type for each in parameters} == {"meta"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's compiler calls what PyTorch advises against
@pytest.mark.parametrize("name", NETWORKS)
def test_a_compiled_twin_computes_on_the_device_that_it_is_on(name, tmp_path):
    """A loop over time steps in compiled code asks for numbers, which `meta` lacks: its graph is read and not run."""
    twin, inputs = moved(write_twin(script_of(name), Framework.TORCH, tmp_path, "twin"))
    seen = set()

    def read(graph, _):
        seen.update(devices(graph))
        return lambda *_: [torch.empty_like(each.meta["example_value"], device="meta")
                           for each in graph.graph.output_node().args[0]]

    with torch.no_grad():
        torch.compile(twin, backend=read, dynamic=False)(inputs)
    assert seen == {"meta"}


@pytest.mark.parametrize("name", ["images in integers", "images in blocks"])
def test_the_sums_of_windows_on_accelerators_have_the_bits_of_golden(name, tmp_path):
    """The way of other devices, on the CPU."""
    made = NETWORKS[name]()
    path = write_twin(script_of(name), Framework.TORCH, tmp_path, "twin")
    text, condition = path.read_text(), 'codes.device.type != "cpu"'
    assert condition in text
    path.write_text(text.replace(condition, "True"))
    samples = networks.inputs(np.random.default_rng(1), 3, made.inputs)
    results = load(path).Twin()(torch.from_numpy(samples.view(np.float16)))
    np.testing.assert_array_equal(results.half().numpy().view(np.uint16), golden(made, samples))


@pytest.mark.parametrize("operation", [
    lambda here, there: there @ here,
    lambda here, there: there[here.long()],
    lambda here, there: here[:, there[0].long()],
    lambda here, there: torch.einsum("ij,jk->ik", here, there),
    lambda here, there: here + torch.arange(2.0),
    lambda here, there: torch.where(here == 0, there, here)])
def test_operations_on_two_devices_are_refused(operation):
    """Most of these run on `meta` alone."""
    here, there = torch.zeros(2, 2, device="meta"), torch.zeros(2, 2)
    with OneDevice("meta"), pytest.raises(RuntimeError, match="cpu"):
        operation(here, there)


@pytest.mark.parametrize(("good", "bad"), [
    ("torch.arange(like.shape[-1], device=like.device)", "torch.arange(like.shape[-1])"),
    ("self.register_buffer(\"table\", table.float())", "self.table = table.float()"),
    ("self.register_buffer(name, stored(values))", "setattr(self, name, stored(values))")])
def test_a_twin_that_keeps_a_tensor_on_the_cpu_is_refused(good, bad, tmp_path):
    name = "LSTM in blocks"
    path = write_twin(script_of(name), Framework.TORCH, tmp_path, "twin")
    text = path.read_text()
    assert good in text
    path.write_text(text.replace(good, bad))
    twin, inputs = moved(path)
    with OneDevice("meta"), pytest.raises(RuntimeError, match="cpu"):
        twin(inputs)
