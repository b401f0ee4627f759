"""The source of a twin in the place of a machine: results of the file that was written."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from concord.firmware.firmware import Firmware
from concord.golden.lib.float16 import is_nan
from concord.sim.machines import host
from concord.twin.lib.reals import arrays
from concord.twin.lib.run import run
from concord.twin.lib.script import Script
from concord.twin.source.frameworks import Framework
from concord.twin.source.lines import attribute
from concord.twin.source.runtimes import RUNTIMES
from concord.verification.session import Session
from concord.verification.twin_session import FUNCTIONS

#: Largest distance of the outputs of a twin without quantisers from those of golden.
CLOSE = 1e-9


class TwinSource:
    """A twin that is imported from its file.

    Args:
        path:      The source, as `nnp twin` has written it.
        framework: What it needs.
        compiled:  Whether to run it compiled by its framework: torch.compile, or a graph of TensorFlow.
    """

    def __init__(self, path: Path, framework: Framework, *, compiled: bool = False):
        self._runtime = RUNTIMES[framework]
        made = self._runtime.opened(path)
        self._twin = self._runtime.compile(made) if compiled else made

    def infer(self, samples: np.ndarray) -> np.ndarray:
        """Outputs uint16[batch, outputs] of input patterns uint16[batch, ...]."""
        results = self.numbers(samples)
        return np.ascontiguousarray(results.astype(np.float16)).view(np.uint16)

    def numbers(self, samples: np.ndarray) -> np.ndarray:
        """Outputs [batch, outputs] of input patterns uint16[batch, ...], in the type that the twin returns."""
        return self._runtime.run(self._twin, np.ascontiguousarray(samples).view(np.float16))


def differing(a: np.ndarray, b: np.ndarray) -> int:
    """Number of bits that differ; a NaN is equal to any NaN."""
    bits = np.where(is_nan(a) & is_nan(b), 0, a ^ b)
    return int(np.bitwise_count(bits).sum())


def distance(wanted: np.ndarray, found: np.ndarray) -> float:
    """Largest difference of numbers, divided by the largest magnitude that is wanted; a NaN is equal to any NaN.

    Numbers that are not finite and differ are an infinite distance apart.
    """
    same = (wanted == found) | (np.isnan(wanted) & np.isnan(found))
    apart = np.abs(np.where(same, 0.0, wanted) - np.where(same, 0.0, found))
    largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=np.finfo(np.float64).tiny)
    return float(np.nan_to_num(apart, nan=np.inf, posinf=np.inf).max(initial=0.0) / largest)


def differing_bits(firmware: Firmware, script: Script, tensors: Mapping[str, np.ndarray], count: int = 3) -> int:
    """Number of bits that differ between firmware on golden, and a script with tensors of a twin's file.

    Args:
        firmware: The firmware.
        script:   What the twin computes.
        tensors:  Its tensors by the names of the file.
        count:    Number of random inputs; sequences of any length have 5 time steps.
    """
    stored = {name: tensors[attribute(name)].astype(values.dtype) for name, values in arrays(script).items()}
    shape = [size or 5 for size in script.inputs]
    inputs = np.random.default_rng(0).normal(size=(count, *shape)).astype(np.float16)
    with np.errstate(all="ignore"):
        results = run(script, inputs, FUNCTIONS, stored)
    bits = 0
    with host.machine("golden", firmware.config) as machine:
        session = Session(machine, firmware)
        for sample, result in zip(inputs.view(np.uint16), results.view(np.uint16), strict=True):
            given = sample if firmware.recurrent else sample.reshape(-1)
            bits += differing(session.infer(given), result)
    return bits
