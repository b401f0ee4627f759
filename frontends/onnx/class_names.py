"""Names of the classes that an ONNX file gives to its outputs."""

import ast

import onnx
from concord.lib.names import cleaned
from onnx import numpy_helper

#: Attributes of classifiers of `ai.onnx.ml` that hold the names or numbers of classes.
ATTRIBUTES = ("classlabels_strings", "classlabels_ints", "classlabels_int64s")
#: Keys of the metadata of a file that hold them, as a dictionary or list in the notation of Python or JSON.
KEYS = ("names", "classes", "class_names", "labels")


def class_names(model: onnx.ModelProto) -> tuple[str, ...]:
    """The classes in the order of the outputs: those of a classifier's node, or of the metadata; empty without such."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name in ATTRIBUTES and (attribute.strings or attribute.ints):
                return _texts(attribute.strings or attribute.ints)
        if node.op_type == "ArrayFeatureExtractor" and node.input[0] in constants:  # classes by the largest output
            return _texts(numpy_helper.to_array(constants[node.input[0]]).reshape(-1).tolist())
    return next((names for entry in model.metadata_props if entry.key.lower() in KEYS
                 and (names := _written(entry.value))), ())


def _texts(values) -> tuple[str, ...]:
    return tuple(cleaned(value.decode(errors="replace") if isinstance(value, bytes) else str(value))
                 for value in values)


def _written(text: str) -> tuple[str, ...]:
    """Names in a text such as {0: 'cat', 1: 'dog'} or ["cat", "dog"]; empty for other texts."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ()
    if isinstance(value, dict):
        numbers = {str(key): name for key, name in value.items()}
        value = [numbers.get(str(index)) for index in range(len(numbers))]
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        return ()
    return _texts(value)
