"""Firmware files: safetensors with a JSON header, without pickle."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from concord.firmware import full_precision
from concord.firmware.cascade import Cascade
from concord.firmware.firmware import Entries, Firmware, ReadDirection, Section, Tiles, check_machine
from concord.firmware.layout import Layout
from concord.lib import tensor_file
from concord.lib.input_axes import InputAxes
from concord.lib.several import from_record
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config

KIND = tensor_file.TensorFileKind(
    key="concord firmware", version=1, name="firmware", remedy="compile again", command="`nnp compile`")

SEVERAL = tensor_file.TensorFileKind(
    key="concord cascade", version=1, name="firmware", remedy="compile again", command="`nnp compile --machines 2`",
    holds="firmware of several machines")

_LAYOUTS = ("input_layout", "output_layout")


def save_firmware(firmware: Firmware, path: Path):
    """Write firmware; the file appears whole or not at all."""
    tensor_file.write(KIND, path, *packed(firmware))


def packed(firmware: Firmware) -> tuple[dict, dict[str, np.ndarray]]:
    """The JSON header and the tensors of firmware."""
    arrays = {f"vectors.{mem.name}": words for mem, words in firmware.vectors.items()}
    arrays |= {f"tiles.{name}": getattr(firmware.tiles, name) for name in ("mantissas", "exponents", "integer")}
    for k, part in enumerate(firmware.entries):
        arrays |= {f"entries.{k}.mantissas": part.mantissas, f"entries.{k}.exponents": part.exponents}
    arrays |= {"words": firmware.instruction_words, "biases": firmware.biases}
    if firmware.table is not None:
        arrays["table"] = firmware.table
    if firmware.full_precision is not None:
        arrays |= full_precision.arrays_of(firmware.full_precision)
    header: dict[str, Any] = {"digest": firmware.config.digest, "config": firmware.config.record()}
    header |= {name: getattr(firmware, name) for name in ("name", "data", "inputs", "outputs", "loop", "text")}
    header |= {"classes": list(firmware.classes), "sections": [asdict(section) for section in firmware.sections]}
    if firmware.input_words is not None:
        header["input_words"] = firmware.input_words
    if firmware.steps is not None:
        header["steps"] = firmware.steps
    if firmware.batch > 1:
        header["batch"] = firmware.batch
    if firmware.constant_words:
        header["constant_words"] = firmware.constant_words
    header |= {"directions": list(firmware.directions)}
    if firmware.description:
        header["description"] = firmware.description
    if firmware.axes:
        header["axes"] = firmware.axes.record
    if firmware.results:
        header["results"] = firmware.results
    if firmware.entries:
        header["entries"] = [part.address for part in firmware.entries]
    header |= {name: layout.record() for name in _LAYOUTS if (layout := getattr(firmware, name))}
    return header, arrays


def load_firmware(path: Path, config: Config | None = None) -> Firmware:
    """Read firmware and check all of it.

    Args:
        path:   The file.
        config: Machine that is to run the firmware; any machine by default.

    Raises:
        ValueError: the file is missing, truncated, of another kind or for another machine; an array is missing or of
            the wrong type or shape; the program is not legal.
    """
    if tensor_file.holds(SEVERAL, path):
        raise ValueError(f"{path}: it holds firmware of several machines, which `nnp run`, `nnp verify`, `nnp "
                         "twin` and `nnp disasm` take; here, compile the model for one machine")
    return load_cascade(path, config).first


def save_cascade(cascade: Cascade, path: Path):
    """Write the firmware of all machines; the file appears whole or not at all."""
    if len(cascade.parts) == 1:
        save_firmware(cascade.first, path)
        return
    headers, arrays = [], {}
    for k, part in enumerate(cascade.parts):
        header, tensors = packed(part)
        headers.append(header)
        arrays |= {f"{k}.{name}": tensor for name, tensor in tensors.items()}
    tensor_file.write(SEVERAL, path, {"name": cascade.name, "cuts": list(cascade.cuts), "parts": headers}, arrays)


def load_cascade(path: Path, config: Config | None = None) -> Cascade:
    """Read the firmware of one machine or of several, and check all of it.

    Arguments and errors are those of `load_firmware`; in a file for several machines, the firmware of each machine must
    fit that of the next one.
    """
    header, arrays = tensor_file.read(SEVERAL if tensor_file.holds(SEVERAL, path) else KIND, path)
    try:
        cascade = _unpacked_cascade(header, arrays)
        for part in cascade.parts:
            if config is not None:
                check_machine(part, config)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"the file lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path}: {reason}") from error
    return cascade


def _unpacked_cascade(header: dict, arrays: dict[str, np.ndarray]) -> Cascade:
    if "parts" not in header:
        return Cascade.of(unpacked(header, arrays))
    parts = []
    for k, part in enumerate(header["parts"]):
        own = f"{k}."
        parts.append(unpacked(part, {
            name.removeprefix(own): array for name, array in arrays.items() if name.startswith(own)}))
    return Cascade(name=header["name"], parts=tuple(parts), cuts=tuple(header["cuts"]))


def _section(record: dict) -> Section:
    names = tuple((address, name) for address, name in record.get("names", ()))
    fields: dict[str, Any] = record | {"names": names}
    return Section(**fields)


def unpacked(header: dict, arrays: dict[str, np.ndarray]) -> Firmware:
    """Firmware from its JSON header and its tensors.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: something is missing, of the wrong type or does not fit.
    """
    config = Config.from_record(header["config"])
    if config.digest != header["digest"]:
        raise ValueError(
            f"it says that it is for machine {header['digest']:08x}, but describes {config.digest:08x}; compile again"
        )
    prefix = "vectors."
    layouts: dict[str, Any] = {name: Layout.from_record(header[name]) for name in _LAYOUTS if name in header}
    return Firmware(
        config=config,
        classes=tuple(header["classes"]),
        sections=tuple(_section(record) for record in header["sections"]),
        vectors={Mem[name.removeprefix(prefix)]: array for name, array in arrays.items() if name.startswith(prefix)},
        tiles=Tiles(**{name: arrays[f"tiles.{name}"] for name in ("mantissas", "exponents", "integer")}),
        directions=tuple(ReadDirection(name) for name in header.get("directions", [ReadDirection.AHEAD])),
        entries=tuple(
            Entries(address=address, **{name: arrays[f"entries.{k}.{name}"] for name in ("mantissas", "exponents")})
            for k, address in enumerate(header.get("entries", []))),
        instruction_words=arrays["words"],
        biases=arrays["biases"],
        input_words=header.get("input_words"),
        steps=header.get("steps"),
        batch=header.get("batch", 1),
        constant_words=header.get("constant_words", 0),
        description=header.get("description", ""),
        axes=InputAxes.from_record(header.get("axes")),
        results=from_record(header.get("results")),
        table=arrays.get("table"),
        full_precision=full_precision.from_arrays(arrays, header.get("entries", [])),
        **layouts,
        **{name: header[name] for name in ("name", "data", "inputs", "outputs", "loop", "text")},
    )
