"""ONNX files that tf2onnx writes of Keras networks and of TensorFlow Lite files.

TensorFlow may want other versions of packages than PyTorch: TENSORFLOW_PYTHON names the Python that has it.
"""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

MLP = """
net = keras.Sequential([keras.Input((20,)), L.Dense(16, activation="relu"), L.Dense(8, activation="tanh"),
                        L.Dense(4, activation="softmax")])
"""
CNN = """
net = keras.Sequential([
    keras.Input((9, 8, 3)), L.Conv2D(6, 3, padding="same", strides=2), L.BatchNormalization(), L.ReLU(),
    L.DepthwiseConv2D(3, padding="same"), L.ReLU(max_value=6), L.MaxPooling2D(2), L.Flatten(), L.Dense(5)])
"""
RESIDUAL = """
x = keras.Input((8, 8, 3))
a = L.Conv2D(4, 3, padding="same", activation="relu")(x)
b = L.Conv2D(4, 1)(L.Concatenate()([a, x]))
net = keras.Model(x, L.Dense(3)(L.GlobalAveragePooling2D()(L.Activation("relu")(L.Add()([a, b])))))
"""
LSTM = """
net = keras.Sequential([keras.Input((9, 6)), L.LSTM(7), L.Dense(3)])
"""
GRU = """
net = keras.Sequential([keras.Input((9, 6)), L.GRU(7, return_sequences=True), L.GRU(5), L.Dense(3)])
"""
BOTH = """
net = keras.Sequential([keras.Input((9, 6)), L.Bidirectional(L.GRU(5)), L.Dense(3)])
"""
CONV1D = """
net = keras.Sequential([keras.Input((16, 4)), L.Conv1D(8, 5, activation="relu"), L.MaxPooling1D(2), L.Flatten(),
                        L.Dense(3)])
"""
START = """
import sys, keras, tensorflow as tf
from keras import layers as L
keras.utils.set_random_seed(0)
"""
SAVED = """
net.export(sys.argv[1], verbose=False)
"""
LITE = """
open(sys.argv[1], "wb").write(tf.lite.TFLiteConverter.from_keras_model(net).convert())
"""


def export(path: Path, network: str, lite: bool):
    """Write a network that a text describes, as a SavedModel or by way of TensorFlow Lite.

    Raises:
        ModuleNotFoundError: TensorFlow or tf2onnx is not installed.
    """
    python = os.environ.get("TENSORFLOW_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import tensorflow, tf2onnx"], capture_output=True).returncode:
        raise ModuleNotFoundError("TensorFlow and tf2onnx", name="TensorFlow or tf2onnx")
    middle = path.with_suffix(".tflite") if lite else path.with_suffix("")
    kind = "--tflite" if lite else "--saved-model"
    for words in (["-c", START + network + (LITE if lite else SAVED), middle],
                  ["-m", "tf2onnx.convert", kind, middle, "--output", path, "--opset", "17"]):
        made = subprocess.run([python, *map(str, words)], capture_output=True, text=True)
        if made.returncode:
            raise RuntimeError(made.stderr[-2000:])


#: What writes each file, and the refusal that it must get.
ENTRIES = {
    "keras_mlp": (partial(export, network=MLP, lite=False), ""),
    "keras_mlp_lite": (partial(export, network=MLP, lite=True), ""),
    "keras_cnn": (partial(export, network=CNN, lite=False), ""),
    "keras_cnn_lite": (partial(export, network=CNN, lite=True), ""),
    "keras_residual": (partial(export, network=RESIDUAL, lite=False), ""),
    "keras_residual_lite": (partial(export, network=RESIDUAL, lite=True), ""),
    "keras_conv1d": (partial(export, network=CONV1D, lite=False), ""),
    "keras_lstm": (partial(export, network=LSTM, lite=False), ""),
    "keras_gru": (partial(export, network=GRU, lite=False), "it repeats a graph of its own"),
    "keras_gru_bidirectional": (partial(export, network=BOTH, lite=False), "it repeats a graph of its own"),
}
