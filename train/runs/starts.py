"""One network trained from every start, over seeds.

Source: S0.e, figure 11.
"""

from collections.abc import Mapping

from concord.train.lib.factory import build
from concord.train.lib.fit import Progress, reproducible, silent
from concord.train.lib.methods import Recipe
from concord.train.lib.networks import CLASSES, SHAPE
from concord.train.qat.check import check
from concord.train.runs.compare import STARTS, Images, Setting, curve, trained


def recipes(setting: Setting, **options) -> dict[str, Recipe]:
    """How a network is quantised from each start.

    Args:
        options: Of the recipes, where all starts are alike.

    Raises:
        ValueError: the network cannot be quantised, or a method cannot do a width.
    """
    made = {name: setting.recipe(**options, **start) for name, start in STARTS.items()}
    for recipe in made.values():
        check(build(setting.network), recipe, SHAPE, CLASSES, machine=False)
    return made


def curves(
    network: str, ways: Mapping[str, Recipe], images: Images, *, seeds: int, fp32_epochs: int, epochs: int,
    progress: Progress = silent,
) -> tuple[list[float], dict[str, list[list[float]]]]:
    """Accuracies in percent: of the FP32 network by seed; by way and seed before training and after each epoch.

    Args:
        ways:        How it is quantised, by name.
        fp32_epochs: Of the FP32 network.
        epochs:      Of quantisation-aware training.
    """
    real, found = [], {name: [] for name in ways}
    for seed in range(seeds):
        reproducible(seed)
        net = trained(network, images, seed, fp32_epochs, None, _named(progress, f"seed {seed}, FP32"))
        real.append(100 * images.accuracy(net))
        for name, recipe in ways.items():
            shown = _named(progress, f"seed {seed}, from {name}")
            found[name].append([100 * value for value in curve(net, recipe, images, seed, epochs, progress=shown)])
    return real, found


def _named(progress: Progress, name: str) -> Progress:
    """Progress of a phase of that name."""
    return lambda _, *rest: progress(name, *rest)
