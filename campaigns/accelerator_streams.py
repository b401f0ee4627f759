"""Inputs that are much longer than NetQ, through all cores of an accelerator at once, with a memory that stalls.

`nox -s accelerator_streams -- --seeds 200`. Each core takes an image of 27,648 numbers through a NetQ of 512 words, and
sends four times as many words as NetQ holds, while the rest of the image goes to a memory of the chip. Every list must
end with golden's bytes, and no core may rest: the memory answers it again and again until its command ends.
"""

from dataclasses import replace
from typing import Annotated

import numpy as np
import typer
from concord.golden.host.messages import input_message, program_message
from concord.sim.machines.accelerator_library import AcceleratorLibrary
from concord.sim.machines.accelerator_scoreboard import difference, play
from concord.sim.machines.accelerators import GoldenAccelerator
from concord.sim.machines.library import Memory
from concord.sim.stimulus.command_lists import CommandList
from concord.spec.accelerator.accelerator import ALIGNED, Accelerator
from concord.spec.accelerator.commands import Command, CommandKind
from concord.spec.isa.assembler import assemble
from concord.spec.machine.config import Config, preset
from rich.console import Console

NUMBERS = 27_648  #: Numbers of an image.
CORES, TURNS = 4, 32
BYTES = 1 << 20
PATIENCE = 2_000  #: Cycles for which a core may get no answer of the memory.
RING, BLOCK = 0, 1 << 17  #: Address of the ring; bytes of the memory for each core, behind those of the ring.


def machine() -> Config:
    """A small machine with 512 words in each direction of NetQ."""
    return replace(preset("tiny"), net_in=512, net_out=512)


def program(config: Config) -> tuple[list[int], int]:
    """A program that takes an image, and the number of words that it sends.

    It sends some words, and writes others to a memory, by turns.
    """
    words, sent = NUMBERS // config.mfu_lanes, 4 * config.net_out
    out, kept = (count // TURNS // config.vector_words for count in (sent, words - sent))
    chain = "set_iterations {}\nv_rd NetQ\nv_wr {}\nend_chain\n"
    text = f"loop {TURNS}\n" + chain.format(out, "NetQ") + chain.format(kept, "InitialVrf, 0") + "end_loop\nend"
    if TURNS * (out + kept) * config.vector_words != words:
        raise ValueError(f"{words} words are no whole turns")
    return assemble(text), sent


def streams(accelerator: Accelerator, rng: np.random.Generator) -> CommandList:
    """A list that gives every core its program and an image."""
    image, commands = bytearray(BYTES), []
    for core, config in enumerate(accelerator.cores):
        assert isinstance(config, Config)  # no core of this campaign trains
        text, sent = program(config)
        load, at = program_message(config, text), BLOCK * (core + 1)
        words = rng.integers(0x3C00, size=(NUMBERS // config.mfu_lanes, config.mfu_lanes)).astype(np.uint16)
        cuts = sorted(rng.choice(len(words) - 1, 8, replace=False) + 1)
        inputs = b"".join(input_message(config, part) for part in np.split(words, cuts))
        first = at + len(load) + -len(load) % ALIGNED
        second = first + len(inputs) + -len(inputs) % ALIGNED
        image[at:at + len(load)], image[first:first + len(inputs)] = load, inputs
        room = ALIGNED * (sent + 1)
        commands += [Command(kind=CommandKind.LOAD, core=core, first=at, count=len(load)),
                     Command(kind=CommandKind.RUN, core=core, first=first, count=len(inputs), second=second,
                             room=min(room, at + BLOCK - second))]
    return CommandList(accelerator=accelerator, image=bytes(image), ring=RING, ring_size=4,
                       commands=tuple(command.pack() for command in commands))


def main(seeds: Annotated[int, typer.Option(help="Number of lists.")] = 200,
         first: Annotated[int, typer.Option(help="Seed of the first one.")] = 0):
    """Run lists, and print how many end as golden's do."""
    accelerator = Accelerator(cores=(machine(),) * CORES, memory_bytes=BYTES)
    ended, longest = 0, 0
    for seed in range(first, first + seeds):
        rng = np.random.default_rng(seed)
        one = streams(accelerator, rng)
        memory = Memory(latency=int(rng.integers(1, 200)), stall=float(rng.choice([0.0, 0.1, 0.4])),
                        mixed=bool(rng.integers(2)))
        with AcceleratorLibrary(accelerator, seed=seed, memory=memory) as gates:
            outcome = play(one, gates)
            longest = max(longest, *(gates.pause(1 + core) for core in range(CORES)))
        wrong = difference(one, play(one, GoldenAccelerator(accelerator)), outcome)
        ended += not wrong
        if wrong:
            Console().print(f"seed {seed}: {wrong.text}")
    Console().print(f"{ended} of {seeds} lists end with golden's bytes; the longest time in which a core had no answer "
                    f"of the memory: {longest} cycles, of {PATIENCE:,}")
    if ended < seeds or longest >= PATIENCE:
        raise SystemExit(1)


if __name__ == "__main__":
    typer.run(main)
