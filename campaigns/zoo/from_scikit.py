"""ONNX files that skl2onnx writes of scikit-learn's models."""

from collections.abc import Callable
from functools import partial
from pathlib import Path


def export(path: Path, make: Callable, target: str):
    """Write a model that is trained on the irises.

    Args:
        path:   File.
        make:   Function that gives the model.
        target: "classes", "two" classes, "names" of classes, or "one" or "several" real numbers.
    """
    import numpy as np
    import skl2onnx
    from sklearn.datasets import load_iris

    x, labels = load_iris(return_X_y=True)
    x = x.astype(np.float32)
    targets = {"classes": labels, "two": labels > 0, "names": np.array(["a", "b", "c"])[labels], "one": x[:, 0],
               "several": x[:, :2]}
    model = make().fit(x, targets[target])
    path.write_bytes(skl2onnx.to_onnx(model, x[:2]).SerializeToString())


def perceptron(**options):
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier(hidden_layer_sizes=(8, 6), max_iter=20, random_state=0, **options)


def regressor():
    from sklearn.neural_network import MLPRegressor

    return MLPRegressor(hidden_layer_sizes=(8,), max_iter=20, random_state=0)


def scaled(make: Callable):
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), make())


def logistic():
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=500)


def ridge():
    from sklearn.linear_model import Ridge

    return Ridge()


def support():
    from sklearn.svm import LinearSVC

    return LinearSVC()


def forest():
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(3, random_state=0)


#: What writes each file, and the refusal that it must get.
ENTRIES = {
    "scikit_perceptron": (partial(export, make=perceptron, target="classes"), ""),
    "scikit_perceptron_tanh": (partial(export, make=partial(perceptron, activation="tanh"), target="names"), ""),
    "scikit_perceptron_two": (partial(export, make=perceptron, target="two"), ""),
    "scikit_scaled": (partial(export, make=partial(scaled, perceptron), target="classes"), ""),
    "scikit_regressor": (partial(export, make=regressor, target="one"), ""),
    "scikit_regressor_several": (partial(export, make=partial(scaled, regressor), target="several"), ""),
    "scikit_logistic": (partial(export, make=logistic, target="classes"), ""),
    "scikit_logistic_two": (partial(export, make=partial(scaled, logistic), target="two"), ""),
    "scikit_ridge": (partial(export, make=ridge, target="several"), ""),
    "scikit_support": (partial(export, make=support, target="classes"), ""),
    "scikit_forest": (partial(export, make=forest, target="classes"), "no such operator"),
}
