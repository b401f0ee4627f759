"""Random programs as twins in numpy: outputs and final memories have golden's bits."""

from types import SimpleNamespace

import numpy as np
import pytest
from concord.sim.stimulus.memory_stimulus import random_words
from concord.sim.stimulus.programs import Case, random_program
from concord.sim.units import CONFIGURATIONS
from concord.spec.config import preset
from concord.spec.memories import VRFS, Mem
from concord.tests.twin.random_firmware import firmware_of, golden_results
from concord.twin.flow.flow_of import flow_of
from concord.twin.generic.generic import generic
from concord.twin.lib.run import run
from concord.twin.vocabulary import generic_numpy, numpy_functions

FUNCTIONS = SimpleNamespace(**vars(numpy_functions) | vars(generic_numpy))
BATCH = 2


def differences(case: Case, seed: int) -> list[str]:
    """Names of what differs between the twin of a program and golden, for the words of the case and for others."""
    config, rng = case.config, np.random.default_rng(seed)
    final = [*VRFS, Mem.VECTOR_RF] if config.vector_rf else [*VRFS]
    pools = [case.pool, *(random_words(config, rng, case.taken, wild=True) for _ in range(BATCH - 1))]
    inputs = np.stack([pool[:case.taken].reshape(-1) for pool in pools]).view(np.float16)
    script = generic(flow_of(firmware_of(case)), final)
    with np.errstate(all="ignore"):
        results = list(run(script, inputs, FUNCTIONS))
    wrong = []
    for sample, pool in enumerate(pools):
        outputs, machine = golden_results(case, pool)
        mine = iter(results)
        wanted = {"outputs": outputs} if len(outputs) else {}
        wanted |= {mem.title: machine.memory.vectors[mem] for mem in VRFS}
        got = {name: next(mine)[sample].view(np.uint16) for name in wanted}
        if config.vector_rf:
            wanted["mantissas"] = machine.memory.entries.mantissas
            wanted["exponents"] = machine.memory.entries.exponents[:, None] + config.activations.e_min
            got |= {name: next(mine)[sample] for name in ("mantissas", "exponents")}
        wrong += [f"{name} of sample {sample}" for name in wanted if not np.array_equal(got[name], wanted[name])]
    return wrong


@pytest.mark.parametrize("config", CONFIGURATIONS)
def test_random_programs(config):
    for seed in range(20):
        case = random_program(preset(config), np.random.default_rng([77, seed]))
        assert not differences(case, seed), f"{config}, program {seed}:\n{case.text}"
