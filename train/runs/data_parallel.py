"""Data parallel training in block floating point, by as many processes as torchrun starts:

    torchrun --nproc-per-node 2 -m concord.train.runs.data_parallel OUT

writes a checkpoint, the same bytes whatever their number. gloo joins processes on CPUs, nccl on GPUs.
"""

import os
from pathlib import Path
from typing import Annotated

import typer
from concord.golden.lazy.tensor_training import Rates
from concord.train.bfp import tensor_checkpoint, tensor_fit
from concord.train.bfp.parallel import Alone, ProcessGroup
from concord.train.bfp.parameters import UpdateRule
from concord.train.bfp.tensor_network import inputs, network
from concord.train.lib import data
from concord.train.lib.fit import reproducible
from torch import distributed


def joined(device: str) -> type[Alone] | ProcessGroup:
    """The group of processes that the environment of torchrun names, or `Alone` without torchrun."""
    if "WORLD_SIZE" not in os.environ:
        return Alone
    distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    return ProcessGroup(device)


def main(
    out: Annotated[Path, typer.Argument(help="The checkpoint to write.")],
    resume: Annotated[Path | None, typer.Option(help="A checkpoint to go on from.")] = None,
    rule: Annotated[UpdateRule, typer.Option(help="What training keeps of parameters.")] = UpdateRule.LAZY,
    rate: Annotated[float, typer.Option(help="Learning rate.")] = 0.02,
    momentum: Annotated[float, typer.Option(help="0 for plain SGD.")] = 0.9,
    samples: Annotated[int, typer.Option(help="Training images.")] = 10_000,
    epochs: Annotated[int, typer.Option(help="Epochs in all, with those of `resume`.")] = 5,
    batch_size: Annotated[int, typer.Option(help="Samples of a step, over all processes.")] = 64,
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
    folder: Annotated[Path | None, typer.Option(help="Folder of the training images.")] = None,
    gpu: Annotated[bool, typer.Option("--gpu", help="One GPU a process.")] = False,
) -> None:
    """Train a small convolutional network on Fashion-MNIST."""
    reproducible(seed)
    device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if gpu else "cpu"
    group = joined(device)
    learn = data.fashion_mnist(folder).first(samples)
    if resume:
        net, state = tensor_checkpoint.load(resume, group, device)
    else:
        rates = Rates(learning_rate=rate, momentum=momentum)
        net = network(tensor_fit.CLASSIFIER, rule, rates, seed=seed, group=group, device=device)
        state = tensor_checkpoint.Checkpoint(
            layers=tensor_fit.CLASSIFIER, rule=rule, rates=rates, epochs=0, seed=seed)
    tensor_fit.fit(net, inputs(tensor_fit.images(learn), device), learn.labels, epochs=epochs, batch_size=batch_size,
                  seed=state.seed, done=state.epochs, progress=lambda *call: group.rank or print(*call, flush=True))
    if group.rank == 0:
        tensor_checkpoint.save(net, tensor_checkpoint.Checkpoint(
            layers=state.layers, rule=state.rule, rates=state.rates, epochs=epochs, seed=state.seed), out)
    if group is not Alone:
        distributed.destroy_process_group()


if __name__ == "__main__":
    typer.run(main)
