"""`concord.train`: an imported network is trained on behind quantisers, from its own weights."""

import os
from pathlib import Path

from concord.nnp.api.data import Data, data_set
from concord.nnp.api.loading import network_of
from concord.nnp.api.objects import Model, Network
from concord.nnp.api.quantising import model_file


def train(
    network: "Network | str | os.PathLike",
    data: Data,
    *,
    preset: str = "",
    arithmetic: str = "integer",
    epochs: tuple[int, int] = (4, 1),
    rate: float | None = None,
    seed: int = 0,
    accumulator: int | None = None,
    out: str | os.PathLike | None = None,
    quiet: bool = True,
    **options,
) -> Model:
    """Train a network behind quantisers, from its weights, as `nnp train FILE` does.

    Args:
        network:     What `load` gives, or the path of a network in float32.
        data:        Data set with labelled training samples, see `concord.nnp.api.data.Data`.
        preset:      Machine: a preset or a TOML file, which sets the bits of weights and inputs. Empty where
            `weights_bits` and `input_bits` are given.
        arithmetic:  "integer", or "bfp" for block floating point.
        epochs:      Epochs of quantisation-aware training (QAT), and of QAT in the machine's arithmetic.
        rate:        Learning rate at the beginning; by default 0.01, and 0.0005 for recurrent networks.
        seed:        Seed of every random choice.
        accumulator: Bits of the accumulator; ranges are enlarged until no sum overflows it. Any by default.
        out:         Model file to write; none by default.
        quiet:       Whether to print no progress.
        options:     Further options of `nnp train FILE`, see `concord.nnp.api.options.choices`.

    Raises:
        ValueError: there is no such machine, data are missing or do not fit, an operation cannot be quantised, or
            training has diverged.
    """
    from concord.nnp.api.options import choices
    from concord.nnp.lib.progress import shown
    from concord.nnp.lib.training import needing_torch
    from rich.console import Console

    chosen = choices(preset, arithmetic, options | {"accumulator": accumulator})
    runs = needing_torch("concord.train.runs.imported")
    floating, samples = network_of(network).floating, data_set(data)
    with model_file(out, floating.name) as path, shown(Console(quiet=quiet)) as progress:
        made = runs.train_imported(
            path, network=floating, data=samples, choices=chosen, seed=seed, epochs=tuple(epochs), rate=rate,
            accumulator=accumulator, command="concord.train", progress=progress)
    return Model(quantised=made, path=None if out is None else Path(out))
