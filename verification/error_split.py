"""Splits the error of a network on the machine: compiler, quantisation of weights, of vectors, and binary16.

The same program runs four times, and each run adds one kind of rounding to the one before it: none, then weights as
they are quantised, vectors in front of products as well, and all results in binary16 as well, which is the machine.
What a step changes in what a layer writes is its part of the error there, with what came from the layers before.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from concord.compiler.network import full_precision
from concord.datasets.samples import Samples
from concord.firmware.firmware import Firmware
from concord.firmware.full_precision import FullPrecision
from concord.firmware.unquantized import UnquantizedMachine
from concord.net.float_network import forward
from concord.net.layers.recurrent import Recurrent
from concord.net.lowering.full_precision import MemoryNumbers
from concord.net.model import INPUT, Model
from concord.spec.isa.chain import Chain
from concord.spec.isa.check import Sequencer
from concord.spec.isa.instructions import Op
from concord.spec.isa.memories import Mem
from concord.verification.layer_results import Writes, squares, units

SAMPLES = 20  #: Most samples on which errors are split.
ALONE_SAMPLES = 4  #: Most samples on which the roundings of each layer alone are measured, which takes a run for each.
#: Largest relative error that rounding to float64 explains.
ROUNDING = 1e-9
_TINY = np.finfo(float).tiny
#: Name of the line for the outputs of the network.
OUTPUT = "network output"


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorRun:
    """One of the runs.

    Attributes:
        part:        What it adds to the error of the run before.
        numbers:     Numbers in the memories.
        activations: Whether vectors are quantised.
        binary16:    Whether results are rounded to binary16.
    """

    part: str
    numbers: MemoryNumbers
    activations: bool = False
    binary16: bool = False


RUNS = (
    ErrorRun(part="compiler", numbers=MemoryNumbers.REAL),
    ErrorRun(part="weights", numbers=MemoryNumbers.WEIGHTS),
    ErrorRun(part="activations", numbers=MemoryNumbers.WEIGHTS, activations=True),
    ErrorRun(part="binary16", numbers=MemoryNumbers.STORED, activations=True, binary16=True),
)
#: Names of the parts of the error, and of all together.
PARTS = (*(run.part for run in RUNS), "together")
#: Name of what the roundings of a layer alone change in the outputs of the network.
ALONE = "alone"


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorSplit:
    """Root mean square errors, relative to the values of the run without rounding.

    Attributes:
        samples: Number of samples that ran.
        layers:  Error by the name of a layer, or OUTPUT, and by the name of its part. The compiler's part is missing
            where what chains write of a layer cannot be laid out as its result. ALONE is relative to the outputs of
            the network.
    """

    samples: int
    layers: Mapping[str, Mapping[str, float]]

    @property
    def compiler(self) -> float:
        """The compiler's part of the error of the outputs."""
        return self.layers[OUTPUT]["compiler"]

    @property
    def first(self) -> str:
        """The first layer, or OUTPUT, at which the compiler's part is more than rounding; empty if there is none."""
        return next((name for name, parts in self.layers.items() if parts.get("compiler", 0.0) > ROUNDING), "")

    @property
    def compiled(self) -> bool:
        """Whether the chains compute the float network, up to the rounding of float64."""
        return self.compiler <= ROUNDING

    @property
    def rows(self) -> list[list[str]]:
        """The parts of the error of each layer, as cells of a table; its head comes first."""
        return [["layer", *PARTS, ALONE], *(
            [name, *(_share(errors[part]) if part in errors else "" for part in (*PARTS, ALONE))]
            for name, errors in self.layers.items())]


def _share(error: float) -> str:
    """A relative error in per cent; one that rounding to float64 explains is none."""
    return "none" if error <= ROUNDING else f"{100 * error:.3g}%"


def images_of(model: Model, firmware: Firmware) -> dict[MemoryNumbers, FullPrecision]:
    """The contents of the memories for all runs.

    Raises:
        ValueError: the model does not hold the numbers of its float network.
    """
    return {numbers: full_precision(model, firmware, numbers) for numbers in MemoryNumbers}


def split_errors(model: Model, firmware: Firmware, images: Mapping[MemoryNumbers, FullPrecision], samples: Samples
                 ) -> ErrorSplit:
    """Split the error of each layer over some samples.

    Args:
        model:    The model.
        firmware: Firmware that was compiled from it.
        images:   From `images_of`.
        samples:  Samples to run.
    """
    wanted = dict(zip((layer.name for layer in model.layers),
                      forward(model, samples.inputs, samples.lengths), strict=True))
    chosen = _result_chains(model, firmware)
    clips = _clips(firmware, images[MemoryNumbers.REAL])
    recorders = [_Recorder(chosen, clips) for _ in RUNS]
    machines = [UnquantizedMachine(firmware, images[run.numbers], activations=run.activations, binary16=run.binary16,
                                   watch=recorder) for run, recorder in zip(RUNS, recorders, strict=True)]
    sums, known = defaultdict(lambda: np.zeros(len(PARTS) + 1)), units(model)
    apart: dict[str, list[float | None]] = {layer: [] for layer in wanted}
    for index, sample in enumerate(samples):
        outputs = [machine.infer(sample) for machine in machines]
        for layer, result in wanted.items():
            apart[layer].append(squares(recorders[0].writes[layer], result[index], known))
        found = [recorder.taken() for recorder in recorders]
        for layer in found[0]:
            sums[layer] += _squares([found[0][layer], *(one[layer] for one in found)])
        sums[OUTPUT] += _squares([wanted[model.layers[-1].name][index], *outputs])
    errors = {layer: dict(zip(PARTS, np.sqrt(found[:-1] / max(found[-1], _TINY)).tolist(), strict=True))
              for layer, found in sums.items()}
    for layer in errors.keys() - {OUTPUT}:
        whole = [each for each in apart[layer] if each is not None]
        found = None if len(whole) < len(samples) else sum(whole) / max(np.square(wanted[layer]).sum(), _TINY)
        errors[layer]["compiler"] = found if found is None else float(np.sqrt(found))
        # Where the outputs are right, a layer with another result is only written in an order that is not known here.
        if found is None or errors[OUTPUT]["compiler"] <= ROUNDING < errors[layer]["compiler"]:
            del errors[layer]["compiler"]
    for layer, error in _alone(model, firmware, images, samples.first(ALONE_SAMPLES), errors).items():
        errors[layer][ALONE] = error
    return ErrorSplit(samples=len(samples), layers={name: errors[name] for name in _order(model, errors)})


def _alone(model: Model, firmware: Firmware, images: Mapping[MemoryNumbers, FullPrecision], samples: Samples,
           errors: Mapping[str, object]) -> dict[str, float]:
    """What the roundings in the chains of each layer alone change in the outputs, relative to these."""
    machine = UnquantizedMachine(firmware, images[MemoryNumbers.REAL])

    def outputs(layers: tuple[str, ...]) -> np.ndarray:
        machine.round_layers(layers, images[MemoryNumbers.STORED])
        return np.stack([machine.infer(sample) for sample in samples])

    exact = outputs(())
    largest = max(np.square(exact).sum(), _TINY)
    # Chains of no layer bring an image of the input to VectorRf, quantised for the layers that read it.
    return {layer.name: float(np.sqrt(np.square(outputs(
                (layer.name, *[INPUT] * (INPUT in model.sources_of(layer)))) - exact).sum() / largest))
            for layer in model.layers if layer.name in errors}


def _order(model: Model, errors: Mapping[str, object]) -> list[str]:
    """Names of layers in the order of the model, then the network's output."""
    return [*(layer.name for layer in model.layers if layer.name in errors), OUTPUT]


def _squares(results: list[np.ndarray]) -> np.ndarray:
    """Sums of squares: of what each result changes, of all changes together, and of the first result.

    Infinities, which stand around images of which a maximum is taken, do not count.
    """
    finite = np.all([np.isfinite(result) for result in results], axis=0)
    first, *others = (result[finite] for result in results)
    steps = [after - before for before, after in zip([first, *others], others, strict=False)]
    return np.array([np.square(step).sum() for step in (*steps, others[-1] - first, first)])


def _result_chains(model: Model, firmware: Firmware) -> Callable[[str, Chain], bool]:
    """Whether a chain writes the result of its layer: any chain, but of a recurrent layer the last one."""
    recurrent = {layer.name for layer in model.layers if isinstance(layer, Recurrent)}
    last = {section.layer: section for section in firmware.sections}
    return lambda layer, chain: layer not in recurrent or (
        last[layer].first <= chain.address and chain.end + 1 > last[layer].last)


def _clips(firmware: Firmware, images: FullPrecision) -> dict[tuple[Mem, int], tuple[float, float]]:
    """The clips that are activation functions, by the memory and address of what they clip."""
    found, program = {}, [int(word) for word in firmware.instruction_words]
    for chain in Sequencer(firmware.config, program, firmware.tiles.modes(firmware.config)).walk(repeat=False):
        for index, instruction in enumerate(chain.instructions):
            if clip := images.clips.get(chain.address + index):
                seen = chain.source if instruction is chain.product else instruction
                found[Mem(seen.mem), seen.a] = clip
    return found


class _Recorder:
    """Keeps what the chains of each layer write at their ends.

    Args:
        chosen: Whether a chain writes the result of its layer.
        clips:  The clips that are activation functions, from `_clips`.

    Attributes:
        writes: The same by chain, by the name of the layer.
    """

    def __init__(self, chosen: Callable[[str, Chain], bool], clips: Mapping[tuple[Mem, int], tuple[float, float]]):
        self._chosen, self._clips = chosen, clips
        self._values: dict[str, list[np.ndarray]] = defaultdict(list)
        self.writes: dict[str, Writes] = defaultdict(Writes)

    def __call__(self, layer: str, chain: Chain, address: int, words: np.ndarray):
        """Keep the words of an instruction, if it is the last write of a result."""
        instruction = chain.instructions[address - chain.address]
        if not layer or address != chain.end - 1 or instruction.op != Op.V_WR or instruction.mem == Mem.MVM_Q:
            return
        if self._chosen(layer, chain):
            clip = self._clips.get((instruction.mem, instruction.a), (-np.inf, np.inf))
            words = np.clip(words, *clip)
            self._values[layer].append(words.ravel())
            self.writes[layer].add(chain, words)

    def taken(self) -> dict[str, np.ndarray]:
        """Values by the name of the layer since the last call."""
        found = {layer: np.concatenate(values) for layer, values in self._values.items()}
        self._values.clear()
        self.writes.clear()
        return found
