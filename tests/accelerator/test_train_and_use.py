"""Training on a core of an accelerator, and the trained network on the core beside it."""

from functools import partial

import numpy as np
import pytest
from concord.compiler.network import compile_network
from concord.compiler.training.session import TrainingSession
from concord.firmware.accelerator_session import AcceleratorSession
from concord.golden.lazy.lazy_update import initial_parameters
from concord.golden.lazy.tensor import to_training_tensor
from concord.golden.lazy.tensor_network import Dense, Relu, named
from concord.golden.lazy.tensor_training import Rates
from concord.net import network
from concord.net.model_file import load_model
from concord.sim.machines.accelerator_trainer import AcceleratorTrainer
from concord.sim.machines.accelerators import GoldenAccelerator
from concord.sim.stimulus.trainer_parts import SMALL
from concord.spec.accelerator.accelerator import Accelerator
from concord.spec.machine.config import preset
from concord.spec.numbers.lazy import LazyFormat, Width
from concord.spec.trainer.instructions import TrainerError

SHIPPED = "data/models/fashion-mlp-bfp8.safetensors"
BOTH = Accelerator(cores=(SMALL, preset("trainer")), memory_bytes=1 << 22)
LAYERS, SHAPE, RATES = (Dense(20, 12), Relu(), Dense(12, 5)), (20,), Rates(learning_rate=0.1, momentum=0.5)


def made(**options) -> TrainingSession:
    """A training that begins from random numbers."""
    rng = np.random.default_rng(0)
    begun = {f"{name}.{part}": initial_parameters(rng.normal(size=size), LazyFormat())
             for name, layer in named(LAYERS) for part, size in layer.shapes.items()}
    return TrainingSession(LAYERS, SHAPE, SMALL, RATES, begun, batches=[6], **options)


def test_a_core_trains_and_another_one_infers():
    accelerator = GoldenAccelerator(BOTH)
    sessions = made(), made(machine=lambda _, server: AcceleratorTrainer(accelerator, server))
    rng = np.random.default_rng(1)
    for _ in range(2):
        x, labels = to_training_tensor(rng.normal(size=(6, *SHAPE)), Width.ACTIVATION), rng.integers(0, 5, 6)
        losses = [session.step(x, labels) for session in sessions]
        assert losses[0] == losses[1]
        sessions[1].pace(0.05)
        sessions[0].pace(0.05)
    alone, beside = sessions
    assert (alone.memory == beside.memory).all()
    assert alone.counts == beside.counts
    model, base = load_model(SHIPPED), beside.trainer.end
    images = np.random.default_rng(2).random((3, model.inputs)).astype(np.float16).view(np.uint16)
    kept = accelerator.read_memory(0, base)
    with AcceleratorSession(accelerator, compile_network(model, BOTH.cores[1]).firmware, cores=(1,), base=base) as nnp:
        assert (nnp.infer_all(list(images)) == network.outputs(model, images)).all()
        assert len(nnp.memories()) == 1
    assert accelerator.read_memory(0, base) == kept


def test_what_stops_a_core():
    trainer = AcceleratorTrainer(GoldenAccelerator(BOTH), np.zeros((64, 16), np.uint8))
    trainer.load([63])
    assert (trainer.run(), trainer.address) == (TrainerError.ILLEGAL, 0)
    trainer.machine.reset()
    with pytest.raises(RuntimeError, match="a command of cores that train failed with ALIGNMENT; docs/accel"):
        trainer.run(2)
    for program in [], [25] * (SMALL.instructions + 1):
        with pytest.raises(ValueError, match=f"the program has {len(program)} words, and the instruction buffer"):
            trainer.load(program)


@pytest.mark.parametrize(("words", "core", "sentence"), [
    (64, 1, "core 1 of the accelerator does not train: name one that does"),
    (1 << 18, 0, "server memory and programs take 4,.* bytes, and the accelerator has 4,194,304: make memory_bytes"),
])
def test_what_cannot_be_driven(words, core, sentence):
    with pytest.raises(ValueError, match=sentence):
        partial(AcceleratorTrainer, cores=(core,))(GoldenAccelerator(BOTH), np.zeros((words, 16), np.uint8))
