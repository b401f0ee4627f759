"""The software twin of firmware in the place of a machine: what programs leave in memories, without a machine."""

from types import SimpleNamespace

import numpy as np
from concord.firmware.firmware import Firmware
from concord.spec.isa.memories import Mem
from concord.twin.flow.flow_of import flow_of
from concord.twin.generic.generic import generic
from concord.twin.lib.reals import arrays
from concord.twin.lib.run import run
from concord.twin.lib.script import Script
from concord.twin.vocabulary import generic_numpy, numpy_functions

#: What scripts call, in numpy.
FUNCTIONS = SimpleNamespace(**vars(numpy_functions) | vars(generic_numpy))


class TwinSession:
    """The twin of firmware, ready for input. Its functions share no arithmetic with golden but the tables of curves.

    Args:
        firmware: The firmware.
    """

    def __init__(self, firmware: Firmware):
        self.firmware = firmware
        self._scripts: dict[int, Script] = {}  # by the number of time steps

    def infer(self, sample: np.ndarray) -> np.ndarray:
        """The outputs of the network for one sample on memories in their initial state, uint16[outputs].

        Args:
            sample: Input patterns, uint16[inputs], or uint16[steps, inputs] if the network is recurrent.
        """
        return self.firmware.result(self.sent(sample).reshape(-1))

    def sent(self, sample: np.ndarray) -> np.ndarray:
        """The words uint16[words, M] that the program sends for one sample, with the argument of `infer`."""
        steps = len(sample) if self.firmware.recurrent else 1
        if steps not in self._scripts:
            self._scripts[steps] = generic(flow_of(self.firmware, steps))
        (words,) = self._run(self._scripts[steps], sample)
        return words.view(np.uint16)

    def probe(self, program: list[int], sample: np.ndarray) -> dict[Mem, np.ndarray]:
        """What `Session.probe` returns: contents of each memory in use and, under NetQ, the words sent.

        Args:
            program: Instruction words.
            sample:  Input patterns as in `infer`.
        """
        firmware, config = self.firmware, self.firmware.config
        flow = flow_of(firmware, program=program)
        results = self._run(generic(flow, [*firmware.vectors, *[Mem.VECTOR_RF] * firmware.uses_entries]), sample)
        sent = results.pop(0) if flow.outputs.item.size else np.zeros((0, config.mfu_lanes), np.float16)
        found = {mem: results.pop(0).view(np.uint16)[:len(words)] for mem, words in firmware.vectors.items()}
        if firmware.uses_entries:
            mantissas, exponents = results
            stored = np.concatenate([mantissas, exponents - config.activations.e_min], 1)
            found[Mem.VECTOR_RF] = stored.astype(np.int16).view(np.uint16)
        return found | {Mem.NET_Q: sent.view(np.uint16)}

    def _run(self, script: Script, sample: np.ndarray) -> list[np.ndarray]:
        """The results of a script for one sample, without the axis of the batch."""
        words = self.firmware.words_of(sample).reshape(1, -1)[:, :script.inputs[0]]
        with np.errstate(all="ignore"):
            results = run(script, words.view(np.float16), FUNCTIONS, arrays(script))
        return [result[0] for result in (results if isinstance(results, tuple) else (results,))]
