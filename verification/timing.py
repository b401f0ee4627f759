"""Cycles of firmware on its machine without numbers, which has the cycles of the machine, at many times the speed."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from concord.firmware.firmware import Firmware
from concord.firmware.firmware_file import load_firmware
from concord.firmware.session import Session
from concord.lib.input_axes import Order
from concord.net.model import Model
from concord.net.quantize.options import QuantizationOptions
from concord.net.quantize.run import quantize
from concord.net.quantize.source import source
from concord.net.quantize.widths import NetworkArithmetic
from concord.sim.machines.timing_library import timing_machine
from concord.spec.host.registers import Counter
from concord.spec.machine.machine_file import find_config
from concord.verification.layer_costs import LayerCost, layer_costs
from concord.workflows import prequantized
from concord.workflows.imports import is_kept, opened
from concord.workflows.presets import compile_for, smallest
from concord.workflows.storage import FileKind, kind_of, read_model

DRAWN = 8  #: Random samples by which a network in float32 is quantised.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Timed:
    """The time of one run of firmware.

    Attributes:
        firmware: The firmware.
        counters: All counters of the run; those of overflows are 0.
        costs:    The share of each layer; empty where nobody asked for it.
    """

    firmware: Firmware
    counters: dict[Counter, int]
    costs: tuple[LayerCost, ...]

    @property
    def whole(self) -> LayerCost:
        """The cost of the whole run."""
        return LayerCost(layers=(), counters=self.counters)


def timed(firmware: Firmware, steps: int, *, layers: bool = False, **options) -> Timed:
    """Run firmware once on its machine without numbers. All numbers of the sample are 0: they do not change the time.

    Args:
        firmware: The firmware.
        steps:    Number of time steps of the sample, where the firmware does not fix it.
        layers:   Whether to find the share of each layer, too, whose run begins before its input arrives.
        options:  As for `sim.machines.timing_library.timing_machine`.

    Raises:
        ValueError: hardware is not generated for the machine.
    """
    sample = np.zeros((*[firmware.steps or steps] * firmware.recurrent, firmware.inputs), np.uint16)
    with timing_machine(firmware.config, **options) as made:
        session = Session(made, firmware)
        session.prepare(len(sample) if firmware.recurrent else 1)
        session.counters()
        session.infer(sample)
        counters = session.counters()
        return Timed(firmware=firmware, counters=counters, costs=tuple(layer_costs(session, sample)) if layers else ())


def firmware_at(place: Path, preset: str, arithmetic: NetworkArithmetic) -> Firmware:
    """The firmware of a file, or of the model or the network in float32 that it holds.

    A network in float32 is quantised by random samples. They decide scales, and no times.

    Args:
        place:      The file.
        preset:     Machine of firmware, or for which models are compiled; empty for the first one that takes them.
        arithmetic: How a network in float32 is quantised.

    Raises:
        ValueError: the file is of another kind, or no machine takes the network.
    """
    match kind_of(place):
        case FileKind.FIRMWARE:
            return load_firmware(place, find_config(preset) if preset else None)
        case FileKind.CASCADE:
            raise ValueError(f"{place} is firmware of several machines: name the model that it was compiled from")
        case FileKind.NETWORK:
            return _of_network(place, preset, arithmetic)
    return compile_for(read_model(str(place), preset), preset, str(place))[1].firmware


def _of_network(place: Path, preset: str, arithmetic: NetworkArithmetic) -> Firmware:
    """Firmware of a network in float32."""
    network, _ = opened(place)
    kept = is_kept(network, anew=False, others=False)
    with tempfile.TemporaryDirectory(prefix="nnp-") as folder:
        inputs, out = Path(folder, "inputs.npy"), Path(folder, f"{place.stem}.safetensors")
        shape = (DRAWN, *[5] * network.sequence, *network.shape)
        np.save(inputs, np.random.default_rng(0).normal(size=shape).astype(np.float32))

        def quantized(machine: str) -> Model:
            if kept:
                return prequantized.write(out, prequantized.kept(network, machine), None, "nnp cycles")
            chosen = QuantizationOptions(preset=machine, arithmetic=arithmetic).choices()
            return quantize(out, source(network, None, inputs, Order.MACHINE), chosen, command="nnp cycles")

        name = preset or smallest(network, quantized, arithmetic, hardware=True)[0]
        firmware = compile_for(quantized(name), name)[1].firmware
    return replace(firmware, name=place.stem)
