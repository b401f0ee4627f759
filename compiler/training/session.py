"""Training steps on a trainer, as a host drives a machine: programs, memory, and the gradient of the loss."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from concord.compiler.training.images import (
    read_exponent,
    read_images,
    read_parameters,
    write_exponent,
    write_identity,
    write_images,
    write_inputs,
    write_parameters,
)
from concord.compiler.training.program import TrainingProgram, compile_training
from concord.golden.lazy import tensor_network
from concord.golden.lazy.lazy_update import Counts, Parameters
from concord.golden.lazy.tensor import TrainingTensor, to_training_tensor
from concord.golden.lazy.tensor_layers import whole
from concord.golden.lazy.tensor_network import Layer
from concord.golden.lazy.tensor_training import Rates, loss_gradient
from concord.golden.trainer.cores import golden_machine
from concord.spec.numbers.lazy import Width
from concord.spec.trainer.config import LANES, TrainerConfig
from concord.spec.trainer.instructions import TrainerError
from concord.spec.trainer.registers import TrainerCounter, TrainerRegister, rate_bits


class TrainingMachine(Protocol):
    """Trainers with the server memory that they were made with; `golden.trainer.trainer.Trainer` and
    `golden.trainer.cores.TrainerCores` describe the members.

    Attributes:
        address: Address of the instruction at which the last program stopped.
    """

    @property
    def address(self) -> int: ...

    @property
    def load(self) -> Callable[..., None]: ...  # takes a program for each core

    def run(self, first: int, second: int) -> TrainerError: ...

    def write_register(self, register: TrainerRegister, value: int): ...

    def read_register(self, address: int) -> int: ...


#: What makes trainers of their sizes, their server memory, uint8[words, 16], and `cores`, if there are several.
MachineMaker = Callable[..., TrainingMachine]


class TrainingSession:
    """A network under training on a machine.

    Args:
        layers:     Layers of `golden.lazy.tensor_network`.
        shape:      Shape of one sample: [inputs] or [channels, rows, columns].
        config:     A core.
        rates:      Learning rate and momentum.
        parameters: By name.
        momenta:    By name; zeros for those that are missing.
        batches:    Sizes of batches that come, at least one.
        machine:    What makes the machine; golden's by default.
        cores:      Number of cores that share a batch.

    Attributes:
        config:   A core.
        cores:    Number of cores.
        programs: Programs by size of the batch.
        memory:   Server memory, uint8[words, 16].
        trainer:  The machine.
        copies:   First words of the parameters that stand, and of those that the next step makes.

    Raises:
        ValueError: training without momentum, no size of a batch, parameters or momenta that are not those of the
            layers, or what `compile_training` refuses.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        shape: Sequence[int],
        config: TrainerConfig,
        rates: Rates,
        parameters: dict[str, Parameters],
        momenta: dict[str, TrainingTensor] | None = None,
        batches: Sequence[int] = (1,),
        machine: MachineMaker = golden_machine,
        cores: int = 1,
    ):
        if not rates.momentum:
            raise ValueError("training on the machine takes momentum; give one above 0")
        if rates.momentum_bits != Width.GRADIENT:
            raise ValueError(
                f"training on the machine keeps momenta in {Width.GRADIENT} bits, not in "
                f"{rates.momentum_bits}: set momentum_bits"
            )
        if not batches:
            raise ValueError("there is no size of a batch: name one or more in `batches`")
        self.config, self._shape, self._rates, momenta = config, tuple(shape), rates, momenta or {}
        self.cores = cores
        self.programs = {batch: compile_training(layers, shape, batch, config, cores) for batch in batches}
        _check_state(tensor_network.shapes(tuple(layers)), parameters, momenta)
        words = max(made.memory_map.words for made in self.programs.values())
        self.memory = np.zeros((words, LANES), np.uint8)
        self.trainer = machine(config, self.memory, **({"cores": cores} if cores > 1 else {}))
        self.write_rates(self.trainer)
        first = self.programs[batches[0]]
        write_parameters(self.memory, first, parameters, momenta)
        self.copies = first.memory_map.old, first.memory_map.new

    def pace(self, rate: float):
        """Go on with another learning rate."""
        self._rates = replace(self._rates, learning_rate=rate)
        self.write_rates(self.trainer)

    def write_rates(self, machine: TrainingMachine):
        """Write learning rate and momentum to a machine."""
        tensors = self._rates.learning_rate_tensor, self._rates.momentum_tensor
        for register, rate in zip((TrainerRegister.RATE, TrainerRegister.DECAY), tensors, strict=True):
            machine.write_register(register, rate_bits(int(rate.mantissas.item()), int(rate.exponent.item())))

    def forward(self, x: TrainingTensor) -> TrainingTensor:
        """The linear output of a batch, int64[samples, outputs] of 32 bits.

        Raises:
            ValueError: the batch has a size without a program, samples of another shape, or other bits than 8.
        """
        made = self._program(x)
        scale = made.memory_map.scales
        write_inputs(self.memory, made, x.mantissas)
        write_exponent(self.memory, scale[made.graph.x], int(x.exponent.item()))
        self._run(made, "forward")
        y = made.graph.y
        found = read_images(self.memory, made.memory_map.values[y], y.channels)
        return whole(found.reshape(len(found), -1), read_exponent(self.memory, scale[y]), Width.LINEAR)

    def backward(self, x: TrainingTensor, gradient: TrainingTensor):
        """Update all parameters by the gradient of the output of a batch that has gone forward, 16 bits.

        Raises:
            ValueError: the gradient has another size than the output of the batch, or other bits than 16.
        """
        made = self._program(x)
        y, outputs = made.graph.y, gradient.mantissas.reshape(len(gradient.mantissas), -1).shape
        if (outputs, gradient.bits) != ((len(x.mantissas), y.channels * y.pixels), Width.GRADIENT):
            raise ValueError(
                f"a gradient of {outputs[0]} x {outputs[1]} numbers of {gradient.bits} bits: the output has "
                f"{len(x.mantissas)} x {y.channels * y.pixels}, and its gradient {Width.GRADIENT} bits"
            )
        write_images(self.memory, made.memory_map.gradients[y], gradient.mantissas)
        write_identity(self.memory, made)
        write_exponent(self.memory, made.memory_map.gradient_scales[y], int(gradient.exponent.item()))
        self._run(made, "backward")
        self.copies = self.copies[::-1]

    def step(self, x: TrainingTensor, labels: np.ndarray) -> float:
        """Train on a batch, and return its mean loss.

        Args:
            x:      A batch, as for `forward`.
            labels: int64[samples], the number of the right output of each sample.

        Raises:
            ValueError: what `forward` refuses, or labels that are not one output for each sample.
        """
        y = self._program(x).graph.y
        outputs = y.channels * y.pixels
        if labels.shape != (len(x.mantissas),) or not 0 <= labels.min() <= labels.max() < outputs:
            raise ValueError(f"labels of a batch of {len(x.mantissas)}: give one in 0..{outputs - 1} for each sample")
        loss, real = loss_gradient(self.forward(x).values, labels, len(labels))
        self.backward(x, to_training_tensor(real, Width.GRADIENT))
        return loss

    def parameters(self) -> tuple[dict[str, Parameters], dict[str, TrainingTensor]]:
        """Parameters and momenta by name."""
        return read_parameters(self.memory, next(iter(self.programs.values())), self.copies[0])

    @property
    def counts(self) -> Counts:
        """What the machine has counted in updates since it was made."""
        numbers = TrainerCounter.STEPS, TrainerCounter.CHANGES, TrainerCounter.ROUNDED, TrainerCounter.SATURATIONS
        return Counts(*(self.trainer.read_register(TrainerRegister.COUNTERS + 4 * number) for number in numbers))

    def _program(self, x: TrainingTensor) -> TrainingProgram:
        if (x.mantissas.shape[1:], x.bits) != (self._shape, Width.ACTIVATION):
            raise ValueError(
                f"samples of the shape {list(x.mantissas.shape[1:])} and {x.bits} bits: the network takes "
                f"{list(self._shape)} and {Width.ACTIVATION} bits"
            )
        if len(x.mantissas) not in self.programs:
            raise ValueError(f"there is no program for a batch of {len(x.mantissas)}: name it in `batches`")
        return self.programs[len(x.mantissas)]

    def _run(self, made: TrainingProgram, work: str):
        """Run the program `work` of a step."""
        self.trainer.load(*made.words(work))
        error = self.trainer.run(*self.copies)
        if error != TrainerError.NONE:
            raise RuntimeError(f"the trainer stopped at instruction {self.trainer.address} with {error.name}")


def _check_state(
    shapes: dict[str, tuple[int, ...]], parameters: dict[str, Parameters], momenta: dict[str, TrainingTensor]
):
    """Refuse parameters and momenta that are not those of the layers, whose parameters have these shapes."""
    if parameters.keys() != shapes.keys() or momenta.keys() - shapes.keys():
        names = sorted((parameters.keys() ^ shapes.keys()) | (momenta.keys() - shapes.keys()))
        raise ValueError(f"the layers have the parameters {', '.join(shapes)}: look at {', '.join(names)}")
    for what, given in ("parameter", parameters), ("momentum of", momenta):
        for name, one in given.items():
            if one.mantissas.shape != shapes[name]:
                raise ValueError(
                    f"the {what} {name!r} has the shape {list(one.mantissas.shape)}, and its layer takes "
                    f"{list(shapes[name])}"
                )
