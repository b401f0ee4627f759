"""How good the outputs of a network are: one table from tasks to their measures."""

from collections.abc import Callable

import numpy as np
from concord.datasets.samples import UNLABELLED, Samples, Task


def measure(task: Task, outputs: np.ndarray, samples: Samples) -> dict[str, float]:
    """The measures of a task by name; the one that tables print comes first. It is empty if there are no labels.

    Args:
        task:    What the network does.
        outputs: float64[samples, outputs], real numbers.
        samples: The samples, with their labels.

    Raises:
        ValueError: outputs and labels do not fit each other.
    """
    if samples.labels is None or task is Task.NONE:
        return {}
    return MEASURES[task](np.asarray(outputs, np.float64), samples, samples.labels)


def remark(task: Task, samples: Samples) -> str:
    """A sentence on a measure that is not defined for these samples; empty if all are."""
    labels = samples.labels
    if task is Task.CLASSIFICATION and labels is not None and samples.steps > 1 and (labels == UNLABELLED).all():
        return (f"no time step or pixel of all {len(samples)} samples has a class, so that accuracy is not defined; "
                "take samples that have some")
    if task is Task.ANOMALY and labels is not None and len(np.unique(labels.astype(bool))) == 1:
        kind = "anomalies" if labels.any() else "normal"
        return f"all {len(samples)} samples are {kind}, so that AUC is not defined; take samples of both kinds"
    if task is Task.REGRESSION and labels is not None and (constant := (labels == labels[0]).all(axis=0)).any():
        several = ", ".join(map(str, np.flatnonzero(constant)))
        where = "all targets" if constant.all() else f"the targets of output {several}"
        return f"{where} are equal in all {len(samples)} samples, so that R2 is not defined and left out there"
    return ""


def first(task: Task, outputs: np.ndarray, samples: Samples) -> float | None:
    """The measure that tables print; None if there are no labels. Arguments and errors are those of `measure`."""
    return next(iter(measure(task, outputs, samples).values()), None)


def predictions(task: Task, outputs: np.ndarray, steps: int = 1) -> np.ndarray:
    """What a model keeps of the outputs of a float network, see `Model.fp32_predictions`.

    Args:
        task:    What the network does.
        outputs: Real[samples, outputs].
        steps:   Number of time steps that have a class each.
    """
    if task is Task.CLASSIFICATION:
        return classified(outputs, steps).astype(np.uint8 if outputs.shape[1] // steps <= 256 else np.int32)
    return np.asarray(outputs, np.float32)


def measure_predictions(task: Task, kept: np.ndarray, samples: Samples) -> dict[str, float]:
    """The measures of what `predictions` keeps; empty if there are no labels or no predictions."""
    if samples.labels is None or not len(kept):
        return {}
    if task is Task.CLASSIFICATION:
        return _right(kept, samples)
    return measure(task, kept, samples)


def classified(outputs: np.ndarray, steps: int = 1) -> np.ndarray:
    """int[samples]: the first of the largest outputs of each sample; int[samples, steps] of each of its time steps.

    The outputs of several time steps are those of an image of one row: of each class, those of all time steps.
    """
    outputs = np.asarray(outputs)
    return outputs.argmax(axis=1) if steps == 1 else outputs.reshape(len(outputs), -1, steps).argmax(axis=1)


def scored(outputs: int, samples: Samples) -> bool:
    """Whether a network with so many outputs scores anomalies among these samples."""
    return outputs == 1 or samples.inputs.ndim == 2 and outputs == samples.inputs.shape[1]


def scores(outputs: np.ndarray, samples: Samples) -> np.ndarray:
    """float64[samples]: how anomalous each sample is.

    This is the one output of a network, or the mean square distance between its input and its outputs.

    Raises:
        ValueError: there are neither one output nor as many as inputs.
    """
    count = outputs.shape[1]
    if not scored(count, samples):
        raise ValueError(f"anomalies are scored by one output, or by as many as the {samples.inputs.shape[-1]} inputs, "
                         f"which they restore; the network has {count} outputs")
    if count == 1:
        return outputs[:, 0]
    return ((outputs - samples.inputs.view(np.float16).astype(np.float64)) ** 2).mean(axis=1)


def _accuracy(outputs: np.ndarray, samples: Samples, labels: np.ndarray) -> dict[str, float]:
    """Share of the samples whose largest output is that of their class."""
    classes, left = divmod(outputs.shape[1], samples.steps)
    if left:
        raise ValueError(f"a sample has the classes of {samples.steps} time steps or pixels, but the network has "
                         f"{outputs.shape[1]} outputs, which are not as many for each")
    if labels.max(initial=0) >= classes:
        raise ValueError(f"a sample has class {labels.max()}, but the network has {classes} outputs, "
                         "one for each class; with a single output choose `task = \"anomaly\"`")
    return _right(classified(outputs, samples.steps), samples)


def _right(found: np.ndarray, samples: Samples) -> dict[str, float]:
    """Share of the classes that are right, of samples or of time steps that have one."""
    known = samples.labels != UNLABELLED if samples.steps > 1 else slice(None)
    right = (found == samples.labels)[known]
    return {"accuracy": float(right.mean()) if right.size else float("nan")}


def _regression(outputs: np.ndarray, samples: Samples, labels: np.ndarray) -> dict[str, float]:
    """RMSE = sqrt(mean((y - t)^2)) over all outputs, and R2 = 1 - sum((y - t)^2) / sum((t - mean(t))^2).

    R2 is the mean over the outputs whose targets differ, because it is not defined where they are equal.
    """
    targets = labels.astype(np.float64)
    if targets.shape != outputs.shape:
        raise ValueError(f"each sample has {targets.shape[1]} targets, but the network has {outputs.shape[1]} outputs")
    square, spread = ((outputs - targets) ** 2).sum(axis=0), ((targets - targets.mean(axis=0)) ** 2).sum(axis=0)
    found, varied = {"RMSE": float(np.sqrt(square.sum() / targets.size))}, spread > 0
    return found | ({"R2": float((1 - square[varied] / spread[varied]).mean())} if varied.any() else {})


def _anomaly(outputs: np.ndarray, samples: Samples, labels: np.ndarray) -> dict[str, float]:
    """AUC: probability that an anomaly has a higher score than another sample, where equal scores count one half."""
    anomalous = labels.astype(bool)
    found, count = scores(outputs, samples), int(anomalous.sum())
    if not 0 < count < len(found):
        return {"AUC": float("nan")}
    _, index, equal = np.unique(found, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(equal) - (equal - 1) / 2)[index]  # mean rank of equal scores, from 1
    return {"AUC": float((ranks[anomalous].sum() - count * (count + 1) / 2) / (count * (len(found) - count)))}


#: The measure of each task that has labels.
MEASURES: dict[Task, Callable[[np.ndarray, Samples, np.ndarray], dict[str, float]]] = {
    Task.CLASSIFICATION: _accuracy,
    Task.REGRESSION: _regression,
    Task.ANOMALY: _anomaly,
}
#: Measures that are at most 1.
SHARES = ("accuracy", "AUC")
#: Name of the first measure of each task.
NAMES = {Task.CLASSIFICATION: "accuracy", Task.REGRESSION: "RMSE", Task.ANOMALY: "AUC", Task.NONE: ""}


def text(name: str, value: float) -> str:
    """The value of a measure as tables print it: shares in percent."""
    if np.isnan(value):
        return "not defined"
    return f"{value:.2%}" if name == "accuracy" else f"{value:.4g}"
