"""Hashes of random networks of every kind: their firmware, and their results on both machines.

A network is drawn twice from each seed: for a machine whose sizes are drawn as well, which only golden runs, and for a
preset, which the Verilated machine runs, too, so that its cycles count.
"""

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from concord.campaigns.makers import networks
from concord.campaigns.makers.any_networks import KINDS, Drawn, draw
from concord.compiler.network import compile_network
from concord.firmware.session import Session
from concord.lib.processes import side_by_side
from concord.sim.machines.host import machine
from concord.spec.host.registers import EVENTS, TIMES
from concord.spec.machine.config import PRESETS
from rich.console import Console

DIGITS = 12  #: Number of hexadecimal digits of a hash.


def digest(arrays: Iterable) -> str:
    """Hash of arrays of integers, and of their shapes."""
    whole = hashlib.sha256()
    for array in arrays:
        values = np.asarray(array)
        whole.update(np.array([values.ndim, *values.shape], "<u8").tobytes())
        whole.update(values.astype("<u8").tobytes())
    return whole.hexdigest()[:DIGITS]


def joined(digests: Iterable[str]) -> str:
    """Hash of several hashes."""
    return digest(np.frombuffer(bytes.fromhex(each), np.uint8) for each in digests)


def counted(counters: dict) -> dict:
    """Hashes of the event counters and of the counters of time, and the clock cycles, from all counters."""
    events, times = ([counters[counter] for counter in kind] for kind in (EVENTS, TIMES))
    return {"events": digest([events]), "times": digest([times]), "cycles": times[0]}


def stored(firmware) -> dict[str, str]:
    """Hashes of the program of a firmware, and of the messages that fill its memories."""
    messages = (np.frombuffer(sent, np.uint8) for sent in firmware.memory_messages())
    return {"words": digest([firmware.instruction_words]), "memories": digest(messages)}


#: Presets whose Verilated machines run networks.
MACHINES = ("tiny", "speech", "ulx3s", "vision")
SAMPLES = 2  #: Number of random samples of each network.
STEPS = 4  #: Time steps of a sequence of any length.


def for_preset(kind: str, seed: int) -> Drawn:
    """A network of a kind for one of the presets.

    Raises:
        ValueError: no layers of these sizes fit each other, or the machine.
    """
    rng, name = np.random.default_rng([seed, len(KINDS) + list(KINDS).index(kind)]), MACHINES[seed % len(MACHINES)]
    model = KINDS[kind](rng, PRESETS[name], bool(rng.integers(2)))
    return Drawn(name=f"{kind} {seed}, {name}", config=PRESETS[name], model=model, steps=model.steps or STEPS)


def one_network(kind: str, seed: int, preset: bool) -> tuple[str, dict]:
    """A name, and the hashes of one network; of a network that the machine cannot run, that it is refused."""
    try:
        drawn = for_preset(kind, seed) if preset else draw(kind, seed)
        firmware = compile_network(drawn.model, drawn.config).firmware
    except ValueError:
        return f"{kind} {seed}, {'preset' if preset else 'any machine'}", {"refused": True}
    found: dict[str, Any] = dict(stored(firmware))
    samples = networks.inputs(np.random.default_rng(0), SAMPLES, *drawn.shape)
    for name in ("golden", "library") if preset else ("golden",):
        with machine(name, drawn.config) as nnp:
            session = Session(nnp, firmware)
            outputs = np.stack([session.infer(sample) for sample in samples])
            found[name] = {"outputs": digest([outputs]), **counted(session.counters())}
    return drawn.name, found


def network_prints(count: int, processes: int, console: Console) -> dict[str, dict]:
    """The hashes of `count` random networks, an equal number for each kind, by name."""
    seeds = -(-count // (2 * len(KINDS)))
    jobs = [(kind, seed, preset) for kind in KINDS for seed in range(seeds) for preset in (False, True)]
    return dict(sorted(side_by_side("random networks", one_network, jobs, console, processes)))
