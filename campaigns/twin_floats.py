"""Networks of `nox -s twin_networks` whose weights or inputs are floats or powers of two."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from concord.campaigns.matrix_networks import STYLES
from concord.campaigns.twin_cases import IMAGES, VOWELS, Network, first_samples
from concord.campaigns.twin_made_cases import CALIBRATION, WEIGHTS_SEED, imported, recurrent
from concord.spec.numbers.formats import Format
from concord.twin.source.twin_file import module_name

#: Exponents that blocks share, and the one of elements that share none.
SHARED, ALONE = {"e_min": -11, "e_max": 4}, {"e_min": 4, "e_max": 4}
EIGHT = Format(bits=8, symmetric=True, **SHARED)
E2M1, E3M0, E3M2 = (Format.floating(*each, **SHARED) for each in ((2, 1), (3, 0), (3, 2)))
E4M3 = Format.floating(4, 3, **ALONE)
#: Formats of weights and inputs.
MIXTURES = (E3M0, EIGHT), (E4M3, EIGHT), (E4M3, E4M3), (E2M1, E3M2), (EIGHT, E4M3), (E3M0, E3M0)


def float_networks(out: Path) -> Iterator[Network]:
    """A perceptron, a residual network and an LSTM for each mixture of formats, with weights from a seed.

    Args:
        out: Folder of the files that come up.
    """
    out.mkdir(parents=True, exist_ok=True)
    for mixture in MIXTURES:
        name = " and ".join(fmt.element for fmt in mixture)
        machine = out / f"{module_name(name)}.toml"
        machine.write_text(machine_text(*mixture))
        sources = {"preset": str(machine), "weights": f"seed {WEIGHTS_SEED}", "samples": first_samples}
        for style, build in {"mlp": mlp, "ResNet": STYLES["ResNet"]}.items():
            yield Network(name=f"{style}, {name}", make=partial(imported, style, build, str(machine), "bfp", out),
                          calibration="-", inputs=IMAGES, **sources)
        yield Network(name=f"lstm, {name}", make=partial(recurrent, "lstm", "bfp", str(machine)),
                      calibration=f"{CALIBRATION} of {VOWELS}", inputs=VOWELS, **sources)


def machine_text(weights: Format, inputs: Format) -> str:
    """The TOML file of a machine of these formats, whose accumulator holds all bits of the smallest products."""
    rows = [f"{name} = {{ bits = {fmt.bits}, precision = {fmt.precision}, symmetric = true, e_min = {fmt.e_min}, "
            f"e_max = {fmt.e_max} }}" for name, fmt in (("weights", weights), ("activations", inputs))]
    return "\n".join(['based_on = "vision"', "multipliers = 0", "acc_int = 14", "acc_frac = 46", *rows, ""])


def mlp() -> torch.nn.Sequential:
    """Two dense layers, between which lie numbers that fill no native vector."""
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 40), torch.nn.ReLU(), torch.nn.Linear(40, 10))
