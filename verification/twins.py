"""The software twins of firmware beside machines: word by word, or as the source that was written."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from concord.firmware.cascade import Cascade
from concord.firmware.firmware import Firmware, check_machine
from concord.firmware.session import Session
from concord.golden.lib.float16 import is_nan
from concord.sim.machines import host
from concord.sim.machines.kinds import MachineKind
from concord.spec.isa.disassembler import disassemble_word
from concord.spec.isa.memories import Mem
from concord.twin.flow.flow_of import flow_of
from concord.twin.generic.generic import generic
from concord.twin.lib.run import arrays, run
from concord.twin.lib.script import Script
from concord.twin.source.frameworks import RUNTIMES, Framework
from concord.twin.source.lines import attribute
from concord.twin.vocabulary import word_functions
from concord.verification.diagnosis import Difference, alone, entered, first_difference_of

#: What is said where a sample differs from the twin only after other samples.
KEPT = ("the first of them, run alone on memories in their initial state, does not differ: the program reads what "
        "earlier samples have left")


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
            results = run(script, words.view(np.float16), word_functions, arrays(script))
        return [result[0] for result in (results if isinstance(results, tuple) else (results,))]


class TwinCheck:
    """Compares the outputs of firmware with those of twins.

    Args:
        firmware:  The firmware that runs.
        reference: The firmware whose twins are computed; it has the same programs.

    Attributes:
        differing: Number of samples whose outputs differ.

    Raises:
        ValueError: the machines or their programs differ.
    """

    def __init__(self, firmware: Cascade, reference: Cascade):
        if len(firmware.parts) != len(reference.parts):
            raise ValueError(f"the firmware is for {len(firmware.parts)} machines, and that of the twin for "
                             f"{len(reference.parts)}; choose firmware that was compiled from the same model")
        for one, right in zip(firmware.parts, reference.parts, strict=True):
            check_machine(right, one.config)
            _check_programs(one, right)
        self.differing = 0
        self._first: tuple[int, np.ndarray] | None = None
        self._firmware, self._reference = firmware, reference
        self._alone = alone(reference)
        self._twins = [TwinSession(one) for one in self._alone]

    def add(self, index: int, sample: np.ndarray, outputs: np.ndarray):
        """Compare the outputs uint16[outputs] of a sample."""
        *_, entering = entered(self._alone, sample, [twin.sent for twin in self._twins])
        if np.array_equal(self._twins[-1].infer(entering), outputs):
            return
        self.differing += 1
        self._first = self._first or (index, sample)

    def locate(self, kind: MachineKind) -> Difference | None:
        """Find the first difference of the first sample whose outputs differ, on machines of a kind; None if no output
        differs.
        """
        if self._first is None:
            return None
        index, sample = self._first
        return first_difference_of(self._reference, self._firmware, kind, sample, index, reference="twin")


def _check_programs(firmware: Firmware, reference: Firmware):
    mine, other = (each.instruction_words.tolist() for each in (firmware, reference))
    if mine != other or firmware.loop != reference.loop:
        address = next((k for k, words in enumerate(zip(mine, other, strict=False)) if len(set(words)) > 1),
                       min(len(mine), len(other)))
        texts = [f"`{disassemble_word(words[address])}`" if address < len(words) else "nothing"
                 for words in (mine, other)]
        raise ValueError(f"the programs of both firmware files differ at instruction {address}: {texts[0]} runs, and "
                         f"the twin has {texts[1]}; choose firmware that was compiled from the same model")


#: Largest distance of the outputs of a twin without quantisers from those of golden.
CLOSE = 1e-9


class TwinSource:
    """A twin that is imported from its file.

    Args:
        path:      The source, as `nnp twin` has written it.
        framework: What it needs.
        compiled:  Whether to run it compiled by its framework: torch.compile, or a graph of TensorFlow.
        device:    Device of PyTorch that a twin of its runs on; empty for the CPU.
    """

    def __init__(self, path: Path, framework: Framework, *, compiled: bool = False, device: str = ""):
        self._runtime = RUNTIMES[framework]
        made = self._runtime.opened(path)
        made = made.to(device) if device else made
        compile = self._runtime.compile if compiled else None
        self._twin = made if compile is None else compile(made)

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
        results = run(script, inputs, word_functions, stored)
    bits = 0
    with host.machine("golden", firmware.config) as machine:
        session = Session(machine, firmware)
        for sample, result in zip(inputs.view(np.uint16), results.view(np.uint16), strict=True):
            given = sample if firmware.recurrent else sample.reshape(-1)
            bits += differing(session.infer(given), result)
    return bits
