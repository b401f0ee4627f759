"""Softmax of a vector by chains of reductions, on golden and on hardware: the example of docs/isa.md."""

from dataclasses import replace

import numpy as np
import pytest
from concord.golden.host.messages import program_message, read_message, words_of, write_message
from concord.golden.lib.float16 import to_bits, to_real
from concord.golden.mfu.softmax import real_softmax
from concord.sim.machines.host import machine
from concord.spec.host.messages import unpack
from concord.spec.host.registers import Counter
from concord.spec.isa.assembler import assemble
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import preset

CONFIG = replace(preset("tiny_vector"), dram_words=1000, dram_bus=8)  # tests/compiler/test_attention.py builds it, too
LANES = CONFIG.mfu_lanes


def program(elements: int, *, softmax: bool = True) -> str:
    """Softmax of numbers in InitialVrf, in place; or the chains without any, which only move them."""
    last = CONFIG.words_of(elements) - 1
    chains = f"""
v_rd InitialVrf, 0
v_largest0
v_wr AddSubVrf0, 0
end_chain
v_rd InitialVrf, 0
vv_a_sub_b0 {last}, held
v_exp0
v_wr InitialVrf, 0
v_sum1
v_recip1
v_wr MultiplyVrf0, 0
end_chain
v_rd InitialVrf, 0
vv_mul0 {last}, held
v_wr InitialVrf, 0
end_chain
"""
    return f"s_wr Rows, {elements}\n{chains * softmax}end\n"


def run(kind: str, x: np.ndarray, text: str) -> tuple[np.ndarray, int]:
    """Numbers of InitialVrf after the program, and its cycles."""
    words = np.zeros((CONFIG.words_of(x.size), LANES), np.uint16)
    words.reshape(-1)[:x.size] = to_bits(x)
    with machine(kind, CONFIG) as made:
        made.clear()
        made.send(write_message(CONFIG, Mem.INITIAL_VRF, words), program_message(CONFIG, assemble(text)))
        made.start()
        made.run()
        cycles = made.counter(Counter.CYCLES)
        made.send(read_message(CONFIG, Mem.INITIAL_VRF, len(words)))
        (reply,) = made.receive()
    return words_of(CONFIG, unpack(CONFIG, reply, to_machine=False)).reshape(-1), cycles


@pytest.mark.parametrize("elements", [1, 2, 11, 64])
def test_softmax_of_a_vector(elements):
    """Within 4 ulp of the real one: exponential, reciprocal and product err by one each, the difference by a half."""
    x = np.random.default_rng(elements).normal(0, 2, elements)
    found, _ = run("golden", x, program(elements))
    wanted = to_bits(real_softmax(to_real(to_bits(x))))
    assert np.abs(found[:elements].astype(int) - wanted).max() <= 4
    assert (found[elements:] == 0).all()


def test_softmax_of_64_numbers_on_hardware():
    """Equal bits, in three passes of 32 words and the latencies of three chains that wait for each other."""
    x = np.random.default_rng(5).normal(0, 3, 64)
    wanted, _ = run("golden", x, program(64))
    found, cycles = run("library", x, program(64))
    assert (found == wanted).all()
    _, without = run("library", x, program(64, softmax=False))
    assert cycles - without == 3 * CONFIG.words_of(64) + 163
