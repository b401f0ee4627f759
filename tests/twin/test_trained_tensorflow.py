"""Twins in TensorFlow that are trained: gradients, the firmware that takes their weights, and what they refuse."""

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.spec.machine.config import preset
from concord.tests.twin.test_source import load
from concord.tests.twin.vocabularies import imported
from concord.twin.recovery.recover import recover
from concord.twin.source.frameworks import Framework
from concord.twin.source.writer import write_twin
from concord.twin.weights import trainable, twin_script, with_tensors
from concord.verification.twins import differing_bits
from safetensors.numpy import load_file

MACHINE = preset("vision")


def _twins(tmp_path, *, block: bool, frameworks):
    """The firmware of a small LSTM, and its twin in each framework."""
    model = networks.recurrent(np.random.default_rng(0), MACHINE, [3, 5], block=[block], outputs=4)
    firmware = compile_network(model, MACHINE).firmware
    script = recover(firmware)
    return firmware, [load(write_twin(script, each, tmp_path, f"lstm_{each}", trainable(script, firmware))).Twin()
                      for each in frameworks]


@pytest.mark.parametrize("block", [False, True])
def test_a_trained_twin_of_tensorflow_has_the_bits_of_its_firmware(block, tmp_path):
    tensorflow = imported("tensorflow")
    firmware, (twin,) = _twins(tmp_path, block=block, frameworks=[Framework.TENSORFLOW])
    rng, losses = np.random.default_rng(1), []
    inputs, labels = rng.normal(size=(6, 4, 3)).astype(np.float32), rng.integers(0, 4, 6)
    twin.trainable().trainable()  # once
    before = {name: getattr(twin, name).numpy() for name in twin.names}
    for _ in range(6):
        with tensorflow.GradientTape() as tape:
            logits = twin(inputs)
            loss = tensorflow.reduce_mean(tensorflow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        gradients = tape.gradient(loss, twin.trainable_variables)
        for variable, gradient in zip(twin.trainable_variables, gradients, strict=True):
            share = tensorflow.reduce_mean(tensorflow.abs(variable))
            variable.assign_sub(0.05 * share * tensorflow.sign(gradient))
        losses.append(float(loss))
    assert losses[-1] < losses[0]
    twin.save(tmp_path / "trained.safetensors")
    found = load_file(tmp_path / "trained.safetensors")
    assert sum(not np.array_equal(found[name], values) for name, values in before.items()) >= len(
        twin.trainable_variables) - 1
    changed = with_tensors(firmware, found)
    assert differing_bits(changed, twin_script(firmware, found), found) == 0


@pytest.mark.parametrize("block", [False, True])
def test_gradients_of_tensorflow_are_those_of_pytorch(block, tmp_path):
    """Each passes roundings, and quantisers inside their range; float32 sums have another order."""
    tensorflow, torch = imported("tensorflow"), imported("torch")
    _, (mine, other) = _twins(tmp_path, block=block, frameworks=[Framework.TENSORFLOW, Framework.TORCH])
    inputs = np.random.default_rng(1).normal(size=(6, 4, 3)).astype(np.float32)
    mine.trainable(), other.trainable()
    with tensorflow.GradientTape() as tape:
        results = mine(inputs)
        total = tensorflow.reduce_sum(results * results)
    theirs = other(torch.from_numpy(inputs))
    assert np.array_equal(results.numpy(), theirs.detach().numpy())
    (theirs * theirs).sum().backward()
    wanted = {name.split(".")[1]: each.grad.numpy() for name, each in other.named_parameters()}
    assert wanted.keys() == mine.parameters.keys()
    found = dict(zip(mine.parameters, tape.gradient(total, list(mine.parameters.values())), strict=True))
    for name, gradient in wanted.items():
        assert np.allclose(found[name], gradient, rtol=1e-3, atol=1e-4 * np.abs(gradient).max()), name


def test_twins_in_tensorflow_say_which_attribute_they_lack(tmp_path):
    imported("tensorflow")
    _, (twin,) = _twins(tmp_path, block=False, frameworks=[Framework.TENSORFLOW])
    with pytest.raises(AttributeError, match="weights_of_nothing"):
        _ = twin.weights_of_nothing
