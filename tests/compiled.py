"""Compiled networks on machines against golden arithmetic and against each other, for tests."""

import numpy as np
from concord.compiler.network import Compiled, compile_network
from concord.model import network
from concord.model.model import Model
from concord.nnp.verify.session import Session
from concord.sim.machines.host import machine
from concord.spec.config import Config
from concord.spec.registers import EVENTS


def agree(config: Config, model: Model, samples: np.ndarray) -> Compiled:
    """Assert that the golden machine gives the bits of the network in golden arithmetic, for every sample."""
    compiled = compile_network(model, config)
    session = Session(machine("golden", config), compiled.firmware)
    wanted = network.forward(model, samples)[-1].outputs
    for sample, outputs in zip(samples, wanted, strict=True):
        np.testing.assert_array_equal(session.infer(sample), outputs)
    return compiled


def machines_agree(golden, library, config: Config, model: Model, samples: np.ndarray):
    """Assert that two machines give the same bits of the network for every sample, and count the same events."""
    firmware = compile_network(model, config).firmware
    sessions = Session(golden, firmware), Session(library, firmware)
    for sample in samples:
        wanted, got = (session.infer(sample) for session in sessions)
        np.testing.assert_array_equal(got, wanted)
    wanted, got = (session.counters() for session in sessions)
    assert {c: got[c] for c in EVENTS} == {c: wanted[c] for c in EVENTS}
