"""Files of firmware for several machines: one safetensors file with the firmware of each, in order, without pickle."""

from pathlib import Path

from concord.golden.host.cascade import Cascade
from concord.golden.host.firmware_file import KIND, SEVERAL, packed, unpacked
from concord.golden.lib import tensor_file


def save_cascade(cascade: Cascade, path: Path):
    """Write the firmware of all machines; the file appears whole or not at all."""
    headers, arrays = [], {}
    for k, part in enumerate(cascade.parts):
        header, tensors = packed(part)
        headers.append(header)
        arrays |= {f"{k}.{name}": tensor for name, tensor in tensors.items()}
    tensor_file.write(SEVERAL, path, {"name": cascade.name, "cuts": list(cascade.cuts), "parts": headers}, arrays)


def load_cascade(path: Path) -> Cascade:
    """Read the firmware of all machines and check all of it.

    Raises:
        ValueError: the file is missing, truncated or of another kind; the firmware of a machine is damaged, or does not
            fit that of the next one.
    """
    if tensor_file.holds(KIND, path):
        raise ValueError(f"{path}: it holds firmware of one machine, and that of several machines is needed here; "
                         f"{SEVERAL.command} makes one")
    header, arrays = tensor_file.read(SEVERAL, path)
    try:
        parts = []
        for k, part in enumerate(header["parts"]):
            own = f"{k}."
            parts.append(unpacked(part, {
                name.removeprefix(own): array for name, array in arrays.items() if name.startswith(own)}))
        return Cascade(name=header["name"], parts=tuple(parts), cuts=tuple(header["cuts"]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"the file lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path}: {reason}") from error
