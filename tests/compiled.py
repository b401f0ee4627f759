"""Compiled networks on machines against golden arithmetic and against each other, for tests."""

import numpy as np
from concord.campaigns.makers import networks
from concord.compiler.network import Compiled, compile_network
from concord.firmware.session import Session
from concord.net import network
from concord.net.model import Model
from concord.sim.machines.host import machine
from concord.spec.host.registers import EVENTS
from concord.spec.machine.config import Config


def agree(config: Config, model: Model, samples: np.ndarray) -> Compiled:
    """Assert that the golden machine gives the bits of the network in golden arithmetic, for every sample."""
    compiled = compile_network(model, config)
    session = Session(machine("golden", config), compiled.firmware)
    wanted = network.forward(model, samples)[-1].outputs
    for sample, outputs in zip(samples, wanted, strict=True):
        np.testing.assert_array_equal(session.infer(sample), outputs)
    return compiled


def agree_on_random(config: Config, model: Model, samples: int = 2, seed: int = 0) -> Compiled:
    """`agree` for random samples, of which the results are not all equal."""
    inputs = networks.inputs(np.random.default_rng(seed), samples, *[model.steps] * model.recurrent, model.inputs)
    wanted = network.forward(model, inputs)[-1].outputs
    assert len(np.unique(wanted)) > 1 or wanted.size < 8
    return agree(config, model, inputs)


def machines_agree(golden, library, config: Config, model: Model, samples: np.ndarray):
    """Assert that two machines give the same bits of the network for every sample, and count the same events."""
    firmware = compile_network(model, config).firmware
    sessions = Session(golden, firmware), Session(library, firmware)
    for sample in samples:
        wanted, got = (session.infer(sample) for session in sessions)
        np.testing.assert_array_equal(got, wanted)
    wanted, got = (session.counters() for session in sessions)
    assert {c: got[c] for c in EVENTS} == {c: wanted[c] for c in EVENTS}
