"""Software twins of the zoo: each network is quantised, compiled for a machine that holds it, and recovered."""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from concord.campaigns.twin_random import calls
from concord.firmware.firmware import Firmware
from concord.firmware.session import outputs_of
from concord.machines.fit import fit
from concord.net.graph import Graph
from concord.net.passes.simplify import is_quantized
from concord.objects import Model, Network
from concord.quantizing import quantize
from concord.spec.machine.config import PRESETS, Config
from concord.spec.machine.machine_file import find_config
from concord.twin.generic.generic import network as word_by_word
from concord.twin.recovery.nodes.elements import Unrecognised
from concord.twin.recovery.recover import recover, without_hints
from concord.twin.source.frameworks import Framework
from concord.twin.source.writer import write_twin
from concord.verification.twins import TwinSource, differing

PRESET = "vision"  #: The machine whose memories grow until it holds a network.
WIDTHS = 4, 8, 16  #: Bits of the same machine for networks that are quantised already, with integers of other tools.
STEPS = 5  #: Time steps of sequences.
SAMPLES, CALIBRATION = 3, 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Twin:
    """A twin beside golden.

    Attributes:
        form:    "layers", or why the twin is written word by word.
        bits:    Differing bits.
        tables:  Number of stored tables that it reads.
        seconds: Time of the recovery, s.
    """

    form: str
    bits: int
    tables: int
    seconds: float

    def __str__(self) -> str:
        tables = f", {self.tables} tables" if self.tables else ""
        return f"{self.form}{tables}, {self.bits} bits, {self.seconds:.1f} s"


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """What became of a network.

    Attributes:
        text:  Its twins with the names of the firmware and without them, or why there is no firmware.
        equal: Whether they have golden's bits; None where there is no firmware.
    """

    text: str
    equal: bool | None = None

    @property
    def state(self) -> str:
        """One word, or two, for the table."""
        return "no firmware" if self.equal is None else "ok" if self.equal else "WRONG"


def twins(network: Graph) -> Iterator[Made]:
    """What becomes of a network in integers and in block floating point."""
    arithmetics = ("kept",) if is_quantized(network) else ("integer", "bfp")
    for arithmetic in arithmetics:
        try:
            firmware = compiled(network, arithmetic)
        except ValueError as error:
            yield Made(text=f"{arithmetic}: {str(error).splitlines()[-1].strip()}")
            continue
        named, plain = (beside_golden(each) for each in (firmware, without_hints(firmware)))
        yield Made(text=f"{arithmetic}: {named}; plain: {plain}", equal=not named.bits and not plain.bits)


def compiled(network: Graph, arithmetic: str) -> Firmware:
    """The firmware of a network, calibrated with random numbers.

    Args:
        arithmetic: "integer" or "bfp", or "kept" for one that is quantised already.

    Raises:
        ValueError: the network cannot be quantised or compiled.
    """
    given, config = Network(floating=network), PRESETS[PRESET]
    if arithmetic == "kept":
        model, config = _kept(given)
    else:
        numbers = np.random.default_rng(0).normal(size=(CALIBRATION, *[STEPS] * network.sequence, *network.shape))
        with tempfile.TemporaryDirectory() as folder:
            np.save(Path(folder) / "numbers.npy", numbers)
            model = quantize(given, preset=PRESET, arithmetic=arithmetic, calibration=Path(folder) / "numbers.npy")
    return fit(model.quantized, config).compiled.firmware


def _kept(network: Network) -> tuple[Model, Config]:
    """The model of a network that is quantised already, and a machine with integers of its width."""
    refusals = []
    for bits in WIDTHS:
        with tempfile.TemporaryDirectory() as folder:
            machine, fmt = Path(folder) / "machine.toml", f"{{ bits = {bits}, symmetric = false }}"
            machine.write_text(f'based_on = "{PRESET}"\nweights = {fmt}\nactivations = {fmt}\n')
            try:
                return quantize(network, preset=str(machine)), find_config(str(machine))
            except ValueError as error:
                refusals.append(error)
    raise refusals[0]


def beside_golden(firmware: Firmware) -> Twin:
    """The twin in numpy of firmware, and how many of its bits differ from golden's."""
    shape = (firmware.steps or STEPS, firmware.inputs) if firmware.recurrent else (firmware.inputs,)
    samples = np.random.default_rng(1).normal(size=(SAMPLES, *shape)).astype(np.float16).view(np.uint16)
    form, begun = "layers", time.perf_counter()
    try:
        script = recover(firmware)
    except Unrecognised as error:
        form, script = f"word by word ({error})", word_by_word(firmware)
    seconds = time.perf_counter() - begun
    with tempfile.TemporaryDirectory() as folder:
        written = TwinSource(write_twin(script, Framework.NUMPY, Path(folder), "twin"), Framework.NUMPY)
        found = written.infer(samples).reshape(SAMPLES, -1)
    tables = sum(call.function == "take" for call in calls(script)) if form == "layers" else 0
    golden = outputs_of("golden", firmware, samples).reshape(SAMPLES, -1)
    return Twin(form=form, bits=differing(golden, found), tables=tables, seconds=seconds)
