"""Recovered scripts beside golden, for tests."""

import numpy as np
from concord.compiler.network import compile_network
from concord.firmware.firmware import Firmware
from concord.firmware.session import Session
from concord.net.model import Model
from concord.sim.machines.host import machine
from concord.spec.machine.config import Config
from concord.twin.lib.run import run
from concord.twin.lib.script import Call, Line, Loop, Script
from concord.twin.recovery.recover import recover
from concord.twin.source.hints import without_hints
from concord.twin.vocabulary import numpy_functions, word_functions


def results(script: Script, samples: np.ndarray) -> np.ndarray:
    """uint16[samples, outputs], the results of a script for samples of binary16 patterns."""
    with np.errstate(all="ignore"):
        found = run(script, samples.view(np.float16), word_functions)
        return numpy_functions.canonical(found).view(np.uint16).reshape(len(samples), -1)


def golden(firmware: Firmware, samples: np.ndarray) -> np.ndarray:
    """uint16[samples, outputs], the results of the golden machine."""
    session = Session(machine("golden", firmware.config), firmware)
    return np.stack([session.infer(sample).reshape(-1) for sample in samples])


def agree(config: Config, model: Model, samples: np.ndarray) -> Script:
    """Assert that the scripts of a model's firmware, with and without hints, return golden's bits."""
    firmware = compile_network(model, config).firmware
    wanted = golden(firmware, samples)
    np.testing.assert_array_equal(results(recover(without_hints(firmware)), samples), wanted)
    script = recover(firmware)
    np.testing.assert_array_equal(results(script, samples), wanted)
    return script


def calls(script: Script) -> list[Call]:
    """All calls of a script, those in loops too."""
    found: list[Call] = []

    def add(lines: tuple[Line, ...]):
        for line in lines:
            if isinstance(line, Loop):
                add(line.body)
            else:
                found.append(line)

    for routine in (*script.routines, script.main):
        add(routine.body)
    return found
