"""`concord.quantize`: a network in float32 becomes a quantised model, without training."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from concord.nnp.api.data import Data, data_set
from concord.nnp.api.loading import network_of
from concord.nnp.api.objects import Model, Network
from concord.nnp.lib.storage import legal

if TYPE_CHECKING:
    from concord.model.data.samples import DataSet
    from concord.model.floating.network import FloatNetwork

#: Options that choose widths where no machine does.
WIDTHS = ("weights_bits", "input_bits", "symmetric")


def quantize(
    network: "Network | str | os.PathLike",
    data: Data | None = None,
    *,
    preset: str = "",
    arithmetic: str = "integer",
    calibration: str | os.PathLike | None = None,
    out: str | os.PathLike | None = None,
    anew: bool = False,
    quiet: bool = True,
    **options,
) -> Model:
    """Quantise a network without training, as `nnp quantize` does.

    A network that is quantised already keeps its integers and scales, and needs no data.

    Args:
        network:     What `load` gives, or the path of a network in float32.
        data:        Data set to calibrate and to measure with, see `concord.nnp.api.data.Data`. Its calibration samples
            find the ranges of values, or else 256 of its training samples.
        preset:      Machine: a preset or a TOML file, which sets the bits of weights and inputs. Empty where
            `weights_bits` and `input_bits` are given.
        arithmetic:  "integer", or "bfp" for block floating point.
        calibration: A .npy file of real numbers [samples, ...] to calibrate with.
        out:         Model file to write; none by default.
        anew:        Whether a network that is quantised already gets new integers and scales.
        quiet:       Whether to print no progress.
        options:     Further options of `nnp quantize`, see `concord.nnp.api.options.choices`.

    Returns:
        The model, whose `measures` are those of the float network and of golden on the test set.

    Raises:
        ValueError: there is no such machine, data are missing or do not fit, or an operation cannot be quantised.
    """
    from concord.nnp.api.options import choices
    from concord.nnp.lib.imports import is_kept
    from concord.nnp.lib.progress import shown
    from concord.nnp.lib.training import needing_torch
    from rich.console import Console

    given = network_of(network)
    bits = {name: options[name] for name in WIDTHS if name in options}
    chosen = choices(preset, arithmetic, options)
    others = calibration is not None or chosen != choices(preset, "integer", bits)
    if is_kept(given.floating, anew, others):
        return _kept(given.floating, data_set(data), preset, out, bits)
    if data is None and calibration is None:
        raise ValueError(f"{given.floating.name}: give data to calibrate with, or a .npy file as calibration")
    train = needing_torch("concord.train.runs.imported")
    source = train.prepared(
        given.floating, data_set(data), chosen, None if calibration is None else Path(calibration))
    with model_file(out, source.network.name) as path, shown(Console(quiet=quiet)) as progress:
        made = train.quantize(path, source, chosen, command="concord.quantize", progress=progress)
    return Model(quantised=made, path=None if out is None else Path(out))


def _kept(network: "FloatNetwork", data: "DataSet | None", preset: str, out: str | os.PathLike | None, bits: dict
          ) -> Model:
    """The model of a network that is quantised already."""
    from concord.nnp.lib import kept
    from concord.nnp.lib.choices import widths

    given = widths(preset, *(bits.get(name) for name in WIDTHS))
    given.check_integers()
    made = kept.kept(network, preset, given)
    with model_file(out, network.name) as path:
        model = kept.write(path, made, kept.fitting(network, data), "concord.quantize")
    return Model(quantised=model, path=None if out is None else Path(out))


@contextmanager
def model_file(out: str | os.PathLike | None, name: str) -> Iterator[Path]:
    """A context with the path of a model file to write; one that is removed afterwards where `out` is None.

    Args:
        out:  The path, or None.
        name: Name of a model without a path, which is otherwise that of its file.

    Raises:
        ValueError: the path cannot be written.
    """
    from concord.nnp.lib.files import check_writable

    if out is not None:
        check_writable(Path(out))
        yield Path(out)
        return
    with tempfile.TemporaryDirectory(prefix="concord-") as folder:
        yield Path(folder, f"{legal(name)}.safetensors")
