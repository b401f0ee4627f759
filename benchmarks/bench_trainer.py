"""Steps of training on a trainer, beside golden.lazy and PyTorch: `nox -s bench_trainer`.

A network learns images of Fashion-MNIST. After each step, a hash of all parameters, residuals, momenta and exponents
must be the same in all ways. A table says what a step costs by formula; with `--machine library`, another one what it
costs the Verilated trainer; with several `--cores`, one what it costs each number of them. Cores that are Verilated
work under a command processor, and share one memory of 16 bytes a cycle each way.
"""

import sys
from functools import partial
from statistics import mean
from typing import Annotated

import typer
from concord.benchmarks.trainer_steps import RATES, TrainedState, batches, by_golden, by_torch, on_machine
from concord.compiler.training.costs import ENGINES, costs, explained, step_bytes, step_cycles
from concord.compiler.training.program import TrainingProgram
from concord.compiler.training.session import TrainingSession
from concord.golden.lazy.lazy_update import initial_parameters
from concord.golden.lazy.tensor_network import AveragePool, Conv, Dense, Layer, MaxPool, Relu, Residual
from concord.nnp.lib.errors import sentences
from concord.sim.machines.trainers import TRAINER_KINDS, trainer_machine
from concord.spec.numbers.lazy import LazyFormat
from concord.spec.trainer.config import LANES, TrainerConfig
from concord.train.bfp import tensor_network as torch_network
from rich.console import Console
from rich.table import Table

PIXELS = 28
#: Shape of a sample, layers, and the batch by name.
MODELS: dict[str, tuple[tuple[int, ...], tuple[Layer, ...], int]] = {
    "perceptron": (
        (PIXELS * PIXELS,),
        (Dense(784, 128), Relu(), Dense(128, 64), Relu(), Dense(64, 10)),
        64,
    ),
    "cnn": (
        (1, PIXELS, PIXELS),
        (
            *(Conv(1, 16, 3, 1, 1), Relu(), MaxPool(2, 2)),
            *(Conv(16, 32, 3, 1, 1), Relu(), MaxPool(2, 2)),
            Dense(32 * 7 * 7, 10),
        ),
        32,
    ),
    "residual": (
        (1, PIXELS, PIXELS),
        (
            *(Conv(1, 16, 3, 1, 1), Relu(), MaxPool(3, 2)),
            Residual((Conv(16, 32, 3, 2, 1), Relu(), Conv(32, 32, 3, 1, 1)), (Conv(16, 32, 1, 2),)),
            *(Relu(), Residual((Conv(32, 32, 3, 1, 1), Relu(), Conv(32, 32, 3, 1, 1))), Relu()),
            *(AveragePool(3, 2), Dense(32 * 3 * 3, 10)),
        ),
        32,
    ),
}


class MeasuredSession(TrainingSession):
    """A session on Verilated trainers that counts cycles of each step.

    Attributes:
        cycles: Cycles in which a program ran, for each size of a batch and step.
    """

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.cycles: list[tuple[int, int]] = []

    def step(self, x, labels) -> float:
        """As `TrainingSession.step`."""
        before = self.trainer.running
        loss = super().step(x, labels)
        self.cycles.append((len(labels), self.trainer.running - before))
        return loss


def report_costs(made: TrainingProgram, batch: int, console: Console):
    """Print what a step costs."""
    console.print(f"Estimate for batch {batch}: cycles of each engine by formula, without repeated passes, and bytes.")
    console.print(explained(made), highlight=False, soft_wrap=True)
    forward, backward = (max(len(words) for words in made.words(work)) for work in ("forward", "backward"))
    console.print(
        f"Programs: {forward:,} and {backward:,} words; server memory: {made.memory_map.words * LANES / 1024:,.0f} KB"
    )


def report_cores(programs: list[TrainingProgram], console: Console):
    """Print what a step costs several numbers of cores, by formula."""
    table = Table("cores", "cycles of a step", "of the first line", "of them exchange", "words of server memory")
    first = step_cycles(programs[0])
    for made in programs:
        cycles, exchange = step_cycles(made), sum(work.exchange for work in costs(made))
        cells = (f"{cycles:,}", f"{cycles / first:.3f}", f"{exchange:,}", f"{step_bytes(made) // LANES:,}")
        table.add_row(str(len(made.cores)), *cells)
    console.print(table)


def report_measured(sessions: list[MeasuredSession], console: Console):
    """Print what later steps of the first size cost each number of cores, and what they move."""
    table = Table("cores", "measured cycles of a later step", "of the first line", "bytes read", "bytes written")
    means = [mean([cycles for _, cycles in each.cycles[1:] or each.cycles]) for each in sessions]
    for each, cycles in zip(sessions, means, strict=True):
        moved = (f"{each.trainer.moved(written=way):,}" for way in (False, True))
        table.add_row(str(each.cores), f"{cycles:,.0f}", f"{cycles / means[0]:.3f}", *moved)
    console.print(table)


def report_cycles(session: MeasuredSession, console: Console) -> float:
    """Print measured cycles beside those of the formula; the largest mean of a step of a size.

    The first step is none of a mean: it finds all exponents, and repeats nearly everything.
    """
    console.print(f"Cycles of the first step, which finds all exponents: {session.cycles[0][1]:,}")
    later, means = session.cycles[1:], [0.0]
    for size in sorted({size for size, _ in later}, reverse=True):
        found = [cycles for each, cycles in later if each == size]
        means.append(sum(found) / len(found))
        console.print(
            f"Cycles of a later step of batch {size}: {means[-1]:,.0f} in the mean, {min(found):,} to {max(found):,}"
        )
    if session.cores == 1:
        report_engines(session, console)
    read, written = (session.trainer.moved(written=way) for way in (False, True))
    console.print(f"Bytes of server memory: {read:,} read, {written:,} written")
    return max(means)


def report_engines(session: MeasuredSession, console: Console):
    """Print in how many cycles each engine of a core alone has worked."""
    trainer, table = session.trainer, Table("engine", "cycles with a job", "of all", "by formula, one pass")
    formula = dict.fromkeys(ENGINES, 0)
    for size, _ in session.cycles:
        for work in costs(session.programs[size]):
            for engine, cycles in work.cycles.items():
                formula[engine] += cycles
    vectors, *engines = trainer.busy.items()
    for engine, cycles in engines:
        expected = f"{formula[engine]:,}" if engine in formula else ""
        table.add_row(engine, f"{cycles:,}", f"{cycles / trainer.running:.1%}", expected)
    table.add_row("tensor, a vector a cycle", f"{vectors[1]:,}", f"{vectors[1] / trainer.running:.1%}", "")
    console.print(f"Cycles of all {len(session.cycles)} steps: {trainer.running:,}")
    console.print(table)


def report_hashes(trained: dict[str, TrainedState], console: Console) -> bool:
    """Print what each way of training does; whether all hashes are the same."""
    steps = Table("step", *trained)
    rows = list(zip(*(one.hashes for one in trained.values()), strict=True))
    for number, hashes in enumerate(rows, 1):
        steps.add_row(str(number), *hashes)
    console.print(steps)
    ways = Table("", "first loss", "last loss", "seconds")
    for name, one in trained.items():
        ways.add_row(name, f"{one.losses[0]:.4f}", f"{one.losses[-1]:.4f}", f"{one.seconds:.1f}")
    console.print(ways)
    wrong = [number for number, hashes in enumerate(rows, 1) if len(set(hashes)) > 1]
    console.print(f"Steps whose hashes differ: {', '.join(map(str, wrong)) or 'none'}")
    return not wrong


@sentences
def main(
    model: Annotated[str, typer.Option(help=f"One of {', '.join(MODELS)}.")] = "perceptron",
    batch: Annotated[int, typer.Option(help="Samples of a batch; 0 for those of the model.", min=0)] = 0,
    steps: Annotated[int, typer.Option(help="Number of steps.", min=1)] = 20,
    last: Annotated[
        int, typer.Option(help="Samples of every third batch, as of the last one of an epoch; 0 for as many.", min=0)
    ] = 0,
    machine: Annotated[str, typer.Option(help=f"The trainer: {' or '.join(TRAINER_KINDS)}.")] = "golden",
    cores: Annotated[str, typer.Option(help="Numbers of cores, with commas between them.")] = "1",
    chip: Annotated[int, typer.Option(help="KB of on-chip memory.", min=1)] = 128,
    most: Annotated[
        int, typer.Option(help="Most cycles of a later step of the Verilated trainer, in the mean; 0 for any.", min=0)
    ] = 0,
) -> None:
    """Train three times, print costs and hashes; the exit code is 1 if hashes differ or a step takes too long."""
    console = Console(width=None if sys.stdout.isatty() else 150)
    if model not in MODELS:
        raise ValueError(f"--model {model}: choose one of {', '.join(MODELS)}")
    if not all(each.isdecimal() for each in cores.split(",")):
        raise ValueError(f"--cores {cores}: give numbers with commas between them, as 1,2,4")
    numbers = list(map(int, dict.fromkeys(cores.split(","))))
    shape, layers, usual = MODELS[model]
    batch = batch or usual
    given = batches(shape, batch, steps, last)
    values = torch_network.initial_values(layers, 0)
    begun = {name: initial_parameters(value, LazyFormat()) for name, value in values.items()}
    measured = machine == "library"
    sessions = [
        (MeasuredSession if measured else TrainingSession)(
            *(layers, shape, TrainerConfig(words=chip * 1024 // LANES), RATES, begun),
            batches=sorted({batch, last or batch}),
            machine=partial(trainer_machine, machine),
            cores=number,
        )
        for number in numbers
    ]
    session = sessions[0]
    programs = [each.programs[batch] for each in sessions]
    report_costs(programs[0], batch, console)
    if len(programs) > 1:
        report_cores(programs, console)
    names = [f"{machine}, {each.cores} cores" if each.cores > 1 else machine for each in sessions]
    ways = {
        **{f"trainer ({name})": partial(on_machine, each, given) for name, each in zip(names, sessions, strict=True)},
        "golden.lazy": lambda: by_golden(layers, begun, given),
        "PyTorch": lambda: by_torch(layers, values, given),
    }
    trained = {}
    for name, train in ways.items():
        console.print(f"{name}, number of steps: {steps} ...")
        trained[name] = train()
    console.print(f"Repeated passes of the trainer: {session.trainer.repeats}")
    long = False
    if isinstance(session, MeasuredSession):
        long = report_cycles(session, console) > (most or float("inf"))
        if len(numbers) > 1:
            report_measured(sessions, console)
        if long:
            console.print(f"A step takes more than {most:,} cycles.")
    same = report_hashes(trained, console)
    raise typer.Exit(not same or long)


if __name__ == "__main__":
    typer.run(main)
