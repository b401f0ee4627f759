"""Several trainers on one server memory, driven as one machine: all of them run their programs of a step together."""

from collections.abc import Sequence

from concord.golden.lib.memory_words import MemoryWords
from concord.golden.trainer.trainer import Trainer, run_together
from concord.spec.trainer.config import TrainerConfig
from concord.spec.trainer.instructions import TrainerError
from concord.spec.trainer.registers import TrainerCounter, TrainerRegister

#: Counters that add up over cores; the others are those of core 0.
ADDED = tuple(
    TrainerRegister.COUNTERS + 4 * counter
    for counter in (TrainerCounter.STEPS, TrainerCounter.ROUNDED, TrainerCounter.SATURATIONS)
)


class TrainerCores:
    """Several trainers.

    Args:
        config: Sizes of each.
        server: Server memory, as `Trainer` takes it.
        cores:  Number of cores.

    Attributes:
        trainers: The cores.
        stopped:  The first core whose last program stopped, or core 0.
    """

    def __init__(self, config: TrainerConfig, server: MemoryWords, cores: int):
        self.trainers = [Trainer(config, server, number) for number in range(cores)]
        self.stopped = self.trainers[0]

    @property
    def address(self) -> int:
        """Address of the instruction at which the last program stopped."""
        return self.stopped.address

    @property
    def repeats(self) -> int:
        """How often `repeat` went back on core 0: on all cores that have work, at the same instructions."""
        return self.trainers[0].repeats

    def load(self, *programs: Sequence[int]):
        """Take a program for each core."""
        for trainer, program in zip(self.trainers, programs, strict=True):
            trainer.load(program)

    def run(self, first: int, second: int) -> TrainerError:
        """Execute all programs; the arguments are those of `Trainer.run`. Returns the first error that is not PEER."""
        run_together(self.trainers, [(first, second)] * len(self.trainers))
        wrong = [trainer for trainer in self.trainers if trainer.error != TrainerError.NONE]
        own = [trainer for trainer in wrong if trainer.error != TrainerError.PEER]
        self.stopped = (own or wrong or self.trainers)[0]
        return self.stopped.error

    def write_register(self, register: TrainerRegister, value: int):
        """Write a register of all cores."""
        for trainer in self.trainers:
            trainer.write_register(register, value)

    def read_register(self, address: int) -> int:
        """Read a register of core 0, or the sum of a counter that each core has for its own parameters."""
        trainers = self.trainers if address in ADDED else self.trainers[:1]
        return sum(trainer.read_register(address) for trainer in trainers)


def golden_machine(config: TrainerConfig, server: MemoryWords, cores: int = 1) -> Trainer | TrainerCores:
    """One trainer, or several of them."""
    return TrainerCores(config, server, cores) if cores > 1 else Trainer(config, server)
