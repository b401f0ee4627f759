"""`concord.compile`, which makes firmware of a model, and `concord.run`, which runs any network on inputs."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
from concord.data import Data, data_for, data_set, location_of, said
from concord.lib.several import Results, apart, columns, listed
from concord.loading import load, model_of
from concord.objects import Model, Network, Program, Shown, table
from rich.console import RenderableType

if TYPE_CHECKING:
    from concord.datasets.samples import DataSet, Samples
    from concord.lib.input_axes import Order

SHOWN = 10  #: Most samples that a table shows.


def compile(model: Model | str | os.PathLike, *, preset: str = "", full_precision: bool = False,
            batch: int = 1) -> Program:
    """Compile a quantised model, as `nnp compile` does.

    Args:
        model:  What `quantize`, `finetune` or `load` gives, or the path of a quantised model.
        preset: Machine: a preset or a TOML file; the smallest preset that takes the model by default.
        full_precision: Whether the firmware also holds the numbers before any rounding, for `run(unquantized=True)`.
        batch:  Number of samples that the machine takes at once, in networks of vectors.

    Raises:
        ValueError: there is no such machine, or it cannot run the model; the message has a line for each reason. Or
            the model does not hold the numbers of its float network.
    """
    from concord.compiler.network import full_precision as numbers_of
    from concord.workflows.presets import compile_for

    quantized = model_of(model).quantized
    machine, compiled = compile_for(quantized, preset, batch=batch)
    firmware = compiled.firmware
    if full_precision:
        firmware = replace(firmware, full_precision=numbers_of(quantized, firmware))
    return Program(firmware=firmware, machine=machine, usage=compiled.usage)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class Outputs(Shown):
    """Outputs of a network; `numpy.asarray` gives the numbers.

    Attributes:
        name:     What ran, in words.
        numbers:  float64[samples, outputs].
        patterns: The same as binary16 patterns, uint16[samples, outputs]; None of what ran in float64.
        labels:   Labels of the samples, or None.
        measures: Measures of the task, such as the accuracy; empty without labels.
        results:  Names and numbers of elements of several outputs, which lie one after the other; empty for one.
    """

    name: str
    numbers: np.ndarray
    patterns: np.ndarray | None
    labels: np.ndarray | None
    measures: Mapping[str, float]
    results: Results = ()

    @property
    def apart(self) -> Mapping[str, np.ndarray]:
        """Each of several outputs by its name, float64[samples, elements]; empty where there is one."""
        return apart(self.numbers, self.results)

    @property
    def classes(self) -> np.ndarray:
        """int[samples], the first of the largest outputs of each sample.

        Raises:
            ValueError: there are several outputs.
        """
        if self.results:
            raise ValueError(f"{self.name}: there are several outputs, {listed(self.results)}, each with classes of "
                             "its own: choose one, as in outputs.apart[NAME].argmax(axis=1)")
        return self.numbers.argmax(axis=1)

    @property
    def summary(self) -> str:
        from concord.workflows.results import described

        return f"{self.name}: {len(self.numbers)} samples" + f", {described(self.measures)}" * bool(self.measures)

    def tables(self) -> Iterator[RenderableType]:
        rows = ([index, *map(float, row)] for index, row in enumerate(self.numbers[:SHOWN]))
        head = columns(self.results, self.numbers.shape[1]) if self.results else map(str, range(self.numbers.shape[1]))
        yield table(("sample", *head), rows, "outputs")

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.array(self.numbers, dtype=dtype, copy=copy)

    def __len__(self) -> int:
        return len(self.numbers)


def run(
    network: Network | Model | Program | str | os.PathLike, inputs: "np.ndarray | Data", *, machine: str = "golden",
    unquantized: bool = False, order: str | None = None,
) -> Outputs:
    """Run a network on inputs.

    Args:
        network: A network in float32, which runs in float64; a quantised model, which runs in golden arithmetic; or
            firmware, which runs on a machine. What `load`, `quantize`, `finetune` or `compile` gives, or a path.
        inputs:  Real numbers [samples, ...], or [samples, time, ...] for a recurrent network, which are rounded to
            binary16 for models and firmware; or a data set, see `concord.data.Data`, whose test samples run.
        machine: Machine that runs firmware: "golden", or Verilated hardware as "library" or under "cocotb".
        unquantized: Whether the chains of firmware run in float64 with all quantisers off; it must be compiled with
            `full_precision=True`.
        order:   Order of the axes of a sample: "file", as the network's file takes them, which is the default, or
            "machine", as the machine reads them (channels, rows, columns).

    Raises:
        ValueError:   the inputs do not fit.
        RuntimeError: the machine stopped with an error, or could not be built.
    """
    from concord.lib.input_axes import Order
    from concord.lib.names import named
    from concord.sim.machines.kinds import MachineKind

    given = load(network) if isinstance(network, str | os.PathLike) else network
    kind = MachineKind(machine)
    if kind != MachineKind.GOLDEN and not isinstance(given, Program):
        raise ValueError(f"machine {machine} runs firmware: compile the model first, as in "
                         "concord.run(concord.compile(model), inputs, machine=\"library\")")
    if unquantized and (kind != MachineKind.GOLDEN or not isinstance(given, Program)):
        raise ValueError("unquantised=True runs the chains of firmware on golden: compile the model first, as in "
                         "concord.compile(model, full_precision=True)")
    axes = None if order is None else named(Order, order)
    if isinstance(given, Network):
        return _float(given, inputs, axes)
    return _quantized(given, inputs, kind, unquantized, axes)


def _float(given: Network, inputs: "np.ndarray | Data", order: "Order | None") -> Outputs:
    """Outputs in float64."""
    from concord.datasets.fitting import arranged
    from concord.lib.input_axes import Order

    network = given.floating
    if _is_data(inputs):
        data = data_for(inputs, given, order)
        samples = data.tested(location_of(inputs))
        array, lengths = samples.inputs.view(np.float16).astype(np.float64), samples.lengths
    else:
        data, samples, lengths = None, None, None
        array = np.asarray(inputs)
        array = array if array.dtype.kind in "iu" else array.astype(np.float64)
        array, notes = arranged(array, network.interface, "inputs", order or Order.FILE)
        said(notes)
    outputs = network.run(array.reshape(*array.shape[:-1], *network.shape), lengths)
    return _outputs(f"{network.name} in float64", outputs.reshape(len(array), -1), None, samples, data, network.results)


def _quantized(given: Model | Program, inputs: "np.ndarray | Data", kind: str, unquantized: bool,
               order: "Order | None") -> Outputs:
    """Outputs in golden arithmetic, or of a machine, or of its chains in float64."""
    from concord.net import network
    from concord.verification.inputs import fitting
    from concord.workflows.results import real

    held = given.quantized if isinstance(given, Model) else given.firmware
    data = None
    if _is_data(inputs):
        read = data_set(inputs, order)
        data = fitting(held, location_of(inputs), read)
        said(data.notes[len(read.notes):])
    samples = data.tested(data.name) if data else _samples(held, np.asarray(inputs), order)
    if isinstance(given, Model):
        name, patterns = f"{held.name} in golden arithmetic", network.outputs(
            given.quantized, samples.inputs, samples.lengths)
    elif unquantized:
        from concord.firmware.unquantized import UnquantizedMachine

        numbers = np.stack(list(map(UnquantizedMachine(given.firmware).infer, samples)))
        return _outputs(f"{held.name}, unquantised", numbers, None, samples, data, held.results)
    else:
        from concord.firmware.session import outputs_of

        name, patterns = f"{held.name} on {given.machine}, {kind}", outputs_of(kind, given.firmware, samples)
    return _outputs(name, real(patterns), patterns, samples, data, held.results)


def _samples(held, array: np.ndarray, order: "Order | None") -> "Samples":
    """Real numbers as a machine reads them."""
    from concord.datasets.fitting import arranged
    from concord.datasets.samples import Samples
    from concord.lib.input_axes import Order
    from concord.verification.inputs import interface

    if array.dtype.kind not in "biuf":
        raise ValueError(f"inputs are real numbers, not {array.dtype}")
    numbers, notes = arranged(array, interface(held), "inputs", order or Order.FILE)
    said(notes)
    with np.errstate(over="ignore"):
        numbers = numbers.astype(np.float16)
    if not np.isfinite(numbers).all():
        raise ValueError("inputs: some numbers are too large for binary16, or are none; scale them")
    return Samples(inputs=numbers.view(np.uint16))


def _outputs(
    name: str, numbers: np.ndarray, patterns: np.ndarray | None, samples: "Samples | None", data: "DataSet | None",
    results: Results,
) -> Outputs:
    from concord.datasets.measures import measure

    found = {} if data is None or samples is None or samples.labels is None else measure(data.task, numbers, samples)
    return Outputs(name=name, numbers=numbers, patterns=patterns, labels=samples.labels if samples else None,
                   measures=found, results=results)


def _is_data(inputs: object) -> TypeGuard[Data]:
    """Whether inputs are a data set rather than an array, or what becomes one."""
    return not isinstance(inputs, np.ndarray | np.generic | list) and (
        type(inputs).__module__.partition(".")[0] != "torch")
