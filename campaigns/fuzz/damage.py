"""Damage to files: bytes, words of texts, values of JSON headers, and arrays, as a random generator chooses."""

import json
import random
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from concord.spec.isa.assembler import assemble
from onnx import ModelProto, numpy_helper
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

#: Sizes and attributes of ONNX nodes that files hold rarely.
NUMBERS = (-(2**31), -3, -1, 0, 1, 2, 3, 7, 1000, 2**31 - 1, 2**40)
#: Words that texts hold rarely.
WORDS = ("", "nan", "inf", "-1", "0", "1e999", "1e-999", "0x10", "9" * 5000, "1_000", "\0", "\x1b[31m", "\N{BOM}", "é",
         "\r", "\n", '"', "'", "[" * 3000, "{", "}", ",", ";", ":", "\t", "=", "../../x", "/dev/zero", ".", "true",
         "[]", "{}", '""', "[1, 2]", "1/0", "os:getcwd", "'''")


def bytes_changed(content: bytes, rng: random.Random) -> bytes:
    """Bytes of which the end is missing, or some have other values, or a part is there twice or is missing."""
    changed = bytearray(content)
    if not content or rng.random() < 0.2:
        return content[:rng.randint(0, len(content))]
    for _ in range(rng.randint(1, 4)):
        first, length = rng.randrange(len(changed) + 1), rng.choice((1, 1, 1, 2, 4, 8, 50))
        part = changed[first:first + length]
        changed[first:first + length] = rng.choice((
            rng.randbytes(len(part)), b"", part * 2, bytes(len(part)), b"\xff" * len(part),
            bytes(byte ^ 1 << rng.randrange(8) for byte in part)))
    return bytes(changed)


def text_changed(text: str, rng: random.Random) -> str:
    """A text in which words or signs are exchanged, missing or there twice."""
    words = re.findall(r"\w+|\s+|.", text)
    for _ in range(rng.randint(1, 3)):
        index = rng.randrange(len(words))
        words[index] = rng.choice((rng.choice(WORDS), rng.choice(words), words[index] * 2, ""))
    return "".join(words)


def value_changed(value, rng: random.Random):
    """A JSON value with one part changed or missing."""
    other = rng.choice([None, -1, 0, 1.5, 10**12, 2**70, "x", "\x1b[31m", [], {}, [0, 0], True, float("nan")])
    if isinstance(value, dict) and value:
        key = rng.choice(list(value))
        if rng.random() < 0.15:
            return {name: part for name, part in value.items() if name != key}
        return value | {key: value_changed(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        chosen = rng.randrange(len(value))
        return [value_changed(part, rng) if index == chosen else part for index, part in enumerate(value)]
    return other


def array_changed(array: np.ndarray, rng: random.Random) -> np.ndarray:
    """An array of another shape, type or values."""
    flat = np.array(array).reshape(-1)
    match rng.randrange(6):
        case 0:
            return flat
        case 1:
            return np.array(array)[None]
        case 2:
            return flat[:rng.randint(0, flat.size)]
        case 3:
            kind = rng.choice(("u1", "i1", "u2", "i4", "i8", "f2", "f4", "f8", "?"))
            with np.errstate(all="ignore"):
                return flat.reshape(array.shape).astype(kind)
        case 4 if flat.size:
            held: Any = np.dtype(np.uint8) if flat.dtype == bool else flat.dtype
            info = np.finfo(held) if held.kind == "f" else np.iinfo(held)
            values = [info.min, info.max, 0, 1] + ([np.nan, np.inf] if flat.dtype.kind == "f" else [])
            flat[rng.randrange(flat.size)] = rng.choice(values)
            return flat.reshape(array.shape)
        case _:
            return np.zeros([rng.choice((0, 1, 2, 3)) for _ in array.shape], array.dtype)


def tensors_changed(path: Path, key: str, rng: random.Random):
    """Rewrite a safetensors file with another header or other arrays."""
    with safe_open(path, framework="numpy") as opened:
        header = json.loads(opened.metadata()[key])
    arrays = load_file(path)
    for _ in range(rng.randint(1, 2)):
        if rng.random() < 0.6 or not arrays:
            header = value_changed(header, rng)
            continue
        name = rng.choice(sorted(arrays))
        array = arrays.pop(name)
        if rng.random() < 0.8:
            arrays[name if rng.random() < 0.9 else name + "x"] = array_changed(array, rng)
    save_file(arrays, path, {key: json.dumps(header)})


def program_changed(path: Path, key: str, rng: random.Random):
    """Rewrite a file of firmware with another text of its program, and its words where the text is a program."""
    with safe_open(path, framework="numpy") as opened:
        header = json.loads(opened.metadata()[key])
    arrays, header["text"] = load_file(path), text_changed(header["text"], rng)
    with suppress(ValueError):
        arrays["words"] = np.array(assemble(header["text"]), np.uint64)
    save_file(arrays, path, {key: json.dumps(header)})


def graph_changed(model: ModelProto, rng: random.Random) -> ModelProto:
    """A model of an ONNX file with one thing changed."""
    made = ModelProto()
    made.CopyFrom(model)
    node = rng.choice(made.graph.node)
    match rng.randrange(9):
        case 0:
            node.input[rng.randrange(len(node.input))] = rng.choice([*node.output, "", "x", "nothing"])
        case 1 if node.attribute:
            attribute = rng.choice(node.attribute)
            for index in range(len(attribute.ints)):
                attribute.ints[index] = rng.choice(NUMBERS)
            attribute.i = rng.choice(NUMBERS)
        case 2 if node.attribute:
            del node.attribute[rng.randrange(len(node.attribute))]
        case 3:
            node.op_type = rng.choice([other.op_type for other in made.graph.node] + ["Add", "Concat", "Slice"])
        case 4:
            tensor = rng.choice(made.graph.initializer)
            tensor.dims[:] = [rng.choice(NUMBERS) for _ in tensor.dims]
        case 5:
            tensor = rng.choice(made.graph.initializer)
            values = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(rng.choice([
                values.reshape(-1), values[None], np.isfinite(values).astype(np.int64), values[:1], values * np.nan
                if values.dtype.kind == "f" else -values]), tensor.name))
        case 6:
            for size in made.graph.input[0].type.tensor_type.shape.dim:
                size.dim_value = rng.choice([1, 2, 3, 4, 8, 1000, -5])
        case 7:
            del made.graph.node[rng.randrange(len(made.graph.node))]
        case _:
            made.graph.output[0].name = rng.choice([*node.output, "x", "nothing"])
    return made
