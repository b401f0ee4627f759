"""Looks into files that a user brings, in a process of its own with limits: `python -m concord.dashboard.inspection`.

It reads a request as JSON from stdin, in the folder of a run, and prints what it found as JSON. A file that takes
all memory, or all time, ends this process and nothing else.
"""

import asyncio
import contextlib
import io
import json
import resource
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from concord.lib.names import cleaned

if TYPE_CHECKING:
    from concord.datasets.samples import DataSet, Samples
    from concord.net.graph import Graph

#: Most bytes of memory, and most seconds of CPU time, that a look may take.
MEMORY, SECONDS = 12 * 2**30, 120
#: Number of samples by which a machine is tried.
TRIED = 32
#: The last bytes of an inspection that failed, which hold its reason.
LAST = 600
#: Networks that are run with one click, by their model files, with the shipped data that they take.
SHIPPED = {
    "fashion-mlp-w4a4": "fashion-mnist", "fashion-resnet-w8": "fashion-mnist", "vowels-lstm-w8": "japanese-vowels"}


async def look(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """What the process finds for a request, see `found`; a sentence under `error` where it finds nothing."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "concord.dashboard.inspection", cwd=folder, stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(2 * SECONDS):
            answer, said = await process.communicate(json.dumps(request).encode())
    except TimeoutError:
        process.kill()
        await process.wait()
        return {"error": f"nothing was found in {2 * SECONDS} seconds: bring a smaller file"}
    try:
        return json.loads(answer)
    except ValueError:
        last = cleaned(said.decode(errors="replace")[-LAST:])
        limits = f"{MEMORY >> 30} GiB of memory and {SECONDS} seconds"
        return {"error": f"the files could not be read within {limits}. {last}"}


def found(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request.

    Args:
        request: The paths `network` and `data` to look at; or `shipped`, the name of a shipped network to take; or
            with `options` by their names, a machine to try.
    """
    if request.get("options"):
        return tried(Path(request["network"]), request["data"], request["options"])
    if request.get("shipped"):
        return taken(request["shipped"])
    return looked_at(Path(request["network"]), request["data"])


def looked_at(network: Path, data: str) -> dict[str, Any]:
    """Layers, shapes and parameters of a network, its kind with its defaults, and what its data are."""
    from concord.net.quantize.source import source
    from concord.workflows.imports import data_set, model_in, opened_or_kept

    model = model_in(network)
    graph, imported = opened_or_kept(network, data)
    answer = _network(graph) | {"kept": _widths_of(model) if model else {}}
    samples = data_set(data, graph, imported)
    source(graph, samples)
    return answer | {"data": _data(samples, _to_train(samples))}


def _to_train(samples: "DataSet") -> "Samples":
    if samples.train is None:
        raise ValueError(f"{samples.name}: there are no samples to train with; bring data with x_train and y_train")
    return samples.train


def _network(graph: "Graph") -> dict[str, Any]:
    from concord.net.quantize.plan import plan
    from concord.train.overflow.kind import kind_of
    from concord.train.overflow.record import STEPS

    kind = kind_of(part.op for part in plan(graph).parts)
    shapes = graph.shapes
    layers: list[dict[str, Any]] = [
        {
            "name": cleaned(node.name), "operation": node.op.label, "shape": " x ".join(map(str, shapes[node.name])),
            "parameters": sum(tensor.size for tensor in node.op.tensors().values())}
        for node in graph.nodes
    ]
    sizes = " x ".join(map(str, graph.shape))
    return {
        "name": cleaned(graph.name), "layers": layers, "kind": kind, "defaults": asdict(STEPS[kind]),
        "takes": f"sequences of {sizes} elements" if graph.sequence else f"inputs of {sizes}",
        "parameters": sum(layer["parameters"] for layer in layers), "notes": [cleaned(note) for note in graph.notes]}


def _widths_of(model) -> dict[str, int]:
    """Widths that a quantised model keeps."""
    from concord.net.quantize.started import Begun

    first = next(iter(Begun(model=model, whole=True).layers.values()))
    return {"weights_bits": first.weights_format.bits, "input_bits": first.input_format.bits}


def _data(samples: "DataSet", train: "Samples") -> dict[str, Any]:
    return {
        "name": samples.name, "task": samples.task, "shape": " x ".join(map(str, samples.shape)),
        "train": len(train), "test": len(samples.test or ()), "notes": list(samples.notes),
        "classes": [cleaned(name) for name in (train.classes or ())][:100]}


def taken(name: str) -> dict[str, Any]:
    """Put the float network of a shipped model and its test set, a part of which trains, into `inputs`."""
    from concord.datasets.dataset import DATA
    from concord.datasets.read import read_data
    from concord.lib.files import write
    from concord.net.graph_file import save
    from concord.net.model_file import load_model
    from concord.workflows.imports import kept_by

    if name not in SHIPPED:
        raise ValueError(f"{name}: choose one of {', '.join(SHIPPED)}")
    samples = read_data(SHIPPED[name])
    test = samples.tested(name)
    shape = test.inputs.shape if test.inputs.ndim == 3 else (-1, *samples.shape)
    arrays: dict[str, Any] = {"x": test.inputs.view(np.float16).reshape(shape), "y": test.labels}
    if test.lengths is not None:
        arrays["lengths"] = test.lengths
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    write(Path("inputs", "data.npz"), content.getvalue())
    save(kept_by(load_model(DATA / "models" / f"{name}.safetensors")), Path("inputs", "network.safetensors"))
    return looked_at(Path("inputs", "network.safetensors"), "inputs/data.npz")


def tried(network: Path, data: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Whether a machine takes the network, quantised by some samples without training; its reason if not."""
    from concord.net.quantize import run
    from concord.net.quantize.options import QuantizationOptions
    from concord.workflows.imports import data_set, model_in, opened_or_kept
    from concord.workflows.presets import compile_for

    model, chosen = model_in(network), QuantizationOptions.of(options)
    if model is None:
        graph, imported = opened_or_kept(network, data)
        samples = data_set(data, graph, imported)
        some = _to_train(samples).first(TRIED)
        samples = replace(samples, train=some, test=None, calibration=some)
        choices = chosen.choices()
        with tempfile.TemporaryDirectory() as folder:
            model = run.quantize(
                Path(folder, "tried.safetensors"), run.opened(graph, samples, choices), choices, command="tried")
    name, _ = compile_for(model, chosen.preset)
    return {"machine": name}


def main():
    """Answer the request of stdin on stdout. What else is printed goes to stderr."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    request = json.loads(sys.stdin.read())
    with contextlib.redirect_stdout(sys.stderr):
        try:
            answer = found(request)
        except (ValueError, OSError, KeyError, RuntimeError, MemoryError, ModuleNotFoundError) as error:
            words = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            answer = {"error": cleaned(words, "\n")}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
