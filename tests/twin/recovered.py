"""Recovered scripts beside golden, for tests."""

import numpy as np
from concord.campaigns.twin_random import results
from concord.compiler.network import compile_network
from concord.firmware.firmware import Firmware
from concord.firmware.session import outputs_of
from concord.net.model import Model
from concord.spec.machine.config import Config
from concord.twin.lib.script import Script
from concord.twin.recovery.recover import recover, without_hints


def golden(firmware: Firmware, samples: np.ndarray) -> np.ndarray:
    """uint16[samples, outputs], the results of the golden machine."""
    return outputs_of("golden", firmware, samples).reshape(len(samples), -1)


def agree(config: Config, model: Model, samples: np.ndarray) -> Script:
    """Assert that the scripts of a model's firmware, with and without hints, return golden's bits."""
    firmware = compile_network(model, config).firmware
    wanted = golden(firmware, samples)
    np.testing.assert_array_equal(results(recover(without_hints(firmware)), samples), wanted)
    script = recover(firmware)
    np.testing.assert_array_equal(results(script, samples), wanted)
    return script
