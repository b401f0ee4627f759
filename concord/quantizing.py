"""`concord.quantize`: a network in float32 becomes a quantised model, without training."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from concord.data import Data, data_for, said
from concord.loading import network_of
from concord.objects import Model, Network
from concord.workflows.storage import legal

if TYPE_CHECKING:
    from concord.datasets.samples import DataSet
    from concord.net.graph import Graph
    from concord.net.quantize.widths import Widths



def quantize(
    network: "Network | str | os.PathLike",
    data: Data | None = None,
    *,
    preset: str = "",
    arithmetic: str = "integer",
    calibration: str | os.PathLike | None = None,
    order: str | None = None,
    out: str | os.PathLike | None = None,
    anew: bool = False,
    quiet: bool = True,
    **options,
) -> Model:
    """Quantise a network without training, as `nnp quantize` does.

    A network that is quantised already keeps its integers and scales, and needs no data.

    Args:
        network:     What `load` gives, or the path of a network in float32.
        data:        Data set to calibrate and to measure with, see `concord.data.Data`. Its calibration samples
            find the ranges of values, or else 256 of its training samples.
        preset:      Machine: a preset or a TOML file, which sets the bits of weights and inputs. Empty where
            `weights_bits` and `input_bits` are given, or where a network that is quantised already decides.
        arithmetic:  "integer", or "bfp" for block floating point.
        calibration: A .npy file of real numbers [samples, ...] to calibrate with.
        order:       Order of the axes of a sample in data and calibration: "file", as the network's file takes them, or
            "machine", as the machine reads them (channels, rows, columns).
        out:         Model file to write; none by default.
        anew:        Whether a network that is quantised already gets new integers and scales.
        quiet:       Whether to print no progress.
        options:     Further options of `nnp quantize`, the fields of `net.quantize.options.QuantizationOptions`.

    Returns:
        The model, whose `measures` are those of the float network and of golden on the test set.

    Raises:
        ValueError: there is no such machine, data are missing or do not fit, or an operation cannot be quantised.
    """
    from concord.lib.input_axes import Order
    from concord.lib.names import named
    from concord.lib.progress import shown
    from concord.net.quantize import run
    from concord.net.quantize.options import QuantizationOptions
    from concord.workflows.imports import decided
    from concord.workflows.original import of_file
    from rich.console import Console

    given = network_of(network)
    asked = QuantizationOptions.of({"preset": preset, "arithmetic": arithmetic, **options}, ("calibration",))
    kept, chosen, widths = decided(given.floating, asked, anew, calibration is not None)
    if kept:
        return _kept(given.floating, None if data is None else data_for(data, given, order), preset, out, widths)
    if data is None and calibration is None:
        raise ValueError(f"{given.floating.name}: give data to calibrate with, or a .npy file as calibration")
    axes = None if order is None else named(Order, order)
    if calibration is not None:
        said(of_file(given.floating, given.original, Path(calibration), axes)[1])
    source = run.opened(given.floating, None if data is None else data_for(data, given, order), chosen,
                        None if calibration is None else Path(calibration), axes)
    with model_file(out, source.network.name) as path, shown(Console(quiet=quiet)) as progress:
        made = run.quantize(path, source, chosen, command="concord.quantize", progress=progress)
    return Model(quantized=made, path=None if out is None else Path(out))


def _kept(network: "Graph", data: "DataSet | None", preset: str, out: str | os.PathLike | None,
          widths: "Widths | None") -> Model:
    """The model of a network that is quantised already."""
    from concord.workflows import prequantized as kept

    made = kept.kept(network, preset, widths)
    with model_file(out, network.name) as path:
        model = kept.write(path, made, kept.fitting(network, data), "concord.quantize")
    return Model(quantized=model, path=None if out is None else Path(out))


@contextmanager
def model_file(out: str | os.PathLike | None, name: str) -> Iterator[Path]:
    """A context with the path of a model file to write; one that is removed afterwards where `out` is None.

    Args:
        out:  The path, or None.
        name: Name of a model without a path, which is otherwise that of its file.

    Raises:
        ValueError: the path cannot be written.
    """
    from concord.lib.files import check_writable

    if out is not None:
        check_writable(Path(out))
        yield Path(out)
        return
    with tempfile.TemporaryDirectory(prefix="concord-") as folder:
        yield Path(folder, f"{legal(name)}.safetensors")
