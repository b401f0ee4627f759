"""Firmware whose cycles are asked for, of a file: of firmware, a model, or a network in float32."""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from concord.firmware.firmware import Firmware
from concord.firmware.firmware_file import load_firmware
from concord.lib.input_axes import Order
from concord.net.model import Model
from concord.net.quantize.options import QuantizationOptions
from concord.net.quantize.run import quantize
from concord.net.quantize.source import source
from concord.net.quantize.widths import NetworkArithmetic
from concord.spec.machine.machine_file import find_config
from concord.workflows import prequantized
from concord.workflows.imports import is_kept, opened
from concord.workflows.presets import compile_for, smallest
from concord.workflows.storage import FileKind, kind_of, read_model

DRAWN = 8  #: Random samples by which a network in float32 is quantised.


def firmware_at(path: Path, preset: str, arithmetic: NetworkArithmetic) -> Firmware:
    """The firmware of a file, or of the model or the network in float32 that it holds.

    A network in float32 is quantised by random samples. They decide scales, and no times.

    Args:
        path:       The file.
        preset:     Machine of firmware, or for which models are compiled; empty for the first one that takes them.
        arithmetic: How a network in float32 is quantised.

    Raises:
        ValueError: the file is of another kind, or no machine takes the network.
    """
    match kind_of(path):
        case FileKind.FIRMWARE:
            return load_firmware(path, find_config(preset) if preset else None)
        case FileKind.CASCADE:
            raise ValueError(f"{path} is firmware of several machines: name the model that it was compiled from")
        case FileKind.NETWORK:
            return _of_network(path, preset, arithmetic)
    return compile_for(read_model(str(path), preset), preset, str(path))[1].firmware


def _of_network(path: Path, preset: str, arithmetic: NetworkArithmetic) -> Firmware:
    """Firmware of a network in float32."""
    network, _ = opened(path)
    kept = is_kept(network, anew=False, others=False)
    with tempfile.TemporaryDirectory(prefix="nnp-") as folder:
        inputs, out = Path(folder, "inputs.npy"), Path(folder, f"{path.stem}.safetensors")
        shape = (DRAWN, *[5] * network.sequence, *network.shape)
        np.save(inputs, np.random.default_rng(0).normal(size=shape).astype(np.float32))

        def quantized(machine: str) -> Model:
            if kept:
                return prequantized.write(out, prequantized.kept(network, machine), None, "nnp cycles")
            chosen = QuantizationOptions(preset=machine, arithmetic=arithmetic).choices()
            return quantize(out, source(network, None, inputs, Order.MACHINE), chosen, command="nnp cycles")

        name = preset or smallest(network, quantized, arithmetic, hardware=True)[0]
        firmware = compile_for(quantized(name), name)[1].firmware
    return replace(firmware, name=path.stem)
