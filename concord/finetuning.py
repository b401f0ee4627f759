"""`concord.finetune`: an imported network is trained on with quantisers, from its own weights."""

import os
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path

from concord.data import Data, data_for
from concord.loading import load, model_of, network_of
from concord.objects import Model, Network
from concord.quantizing import model_file


def finetune(
    network: "Network | Model | str | os.PathLike",
    data: Data,
    *,
    preset: str = "",
    arithmetic: str = "integer",
    epochs: tuple[int, int] = (4, 1),
    rate: float | None = None,
    seed: int = 0,
    order: str | None = None,
    start_from: "Model | str | os.PathLike | None" = None,
    out: str | os.PathLike | None = None,
    quiet: bool = True,
    **options,
) -> Model:
    """Train a network with quantisers, from its weights, as `nnp train FILE` does.

    Args:
        network:     What `load` gives, or the path of a network in float32; or a quantised model, which is trained on.
        data:        Data set with labelled training samples, see `concord.data.Data`.
        preset:      Machine: a preset or a TOML file, which sets the bits of weights and inputs. Empty where
            `weights_bits` and `input_bits` are given.
        arithmetic:  "integer", or "bfp" for block floating point.
        epochs:      Epochs of quantisation-aware training (QAT), and of QAT in the machine's arithmetic.
        rate:        Learning rate at the beginning; by default 0.01, and 0.0005 for recurrent networks and attention.
        seed:        Seed of every random choice.
        order:       Order of the axes of a sample in data: "file", as the network's file takes them, or
            "machine", as the machine reads them (channels, rows, columns).
        start_from:  Quantised model whose integers, scales and ranges initialise the layers that have the name and
            shape of one of its own.
        out:         Model file to write; none by default.
        quiet:       Whether to print no progress.
        options:     Further options of `nnp train FILE`, the fields of `net.quantize.options.QuantizationOptions`
            and of `train.overflow.options.OverflowOptions`, such as `accumulator`.

    Raises:
        ValueError: there is no such machine, data are missing or do not fit, an operation cannot be quantised, or
            training has diverged.
    """
    from concord.lib import user_options
    from concord.lib.extras import needing
    from concord.lib.progress import shown
    from concord.net.quantize.options import QuantizationOptions
    from concord.train.overflow.options import OverflowOptions
    from concord.workflows import imports, overflow_counts, training
    from rich.console import Console

    asked = {"preset": preset, "arithmetic": arithmetic, **options}
    wished, overflow = user_options.chosen(asked, (QuantizationOptions, OverflowOptions), ("epochs", "rate"))
    wished.check_trains()
    found = load(network) if isinstance(network, str | os.PathLike) else network
    own = found.quantized if isinstance(found, Model) else None
    begun, wished = imports.begun(own, model_of(start_from).quantized if start_from else None, wished)
    chosen = wished.choices()
    training.check_rate(rate)
    overflow.check(integers=not chosen.blocks, batch_norm=wished.batch_norm, staged=bool(wished.stages))
    overflow = overflow_counts.counted(overflow, wished.preset)
    if not (isinstance(epochs, Sequence) and len(epochs) == 2 and all(isinstance(count, Integral) for count in epochs)):
        raise ValueError(f"epochs are {epochs!r}: two whole numbers are needed, such as (4, 1)")
    runs = needing("train", "concord.train.runs.imported")
    given = Network(floating=imports.kept_by(own), original=None) if own else network_of(found)
    floating, samples = given.floating, data_for(data, given, order)
    with model_file(out, floating.name) as path, shown(Console(quiet=quiet)) as progress:
        made = runs.train_imported(
            path, network=floating, data=samples, choices=chosen, seed=seed, epochs=tuple(epochs), rate=rate,
            overflow=overflow, begun=begun, command="concord.finetune", progress=progress)
    return Model(quantized=made, path=None if out is None else Path(out))
