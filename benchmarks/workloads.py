"""Programs whose speed is measured, with the contents of their memories."""

from dataclasses import dataclass, replace

import numpy as np
from concord.golden.host.messages import input_message, packed_message, program_message, write_message
from concord.spec.isa.assembler import assemble
from concord.spec.isa.memories import MEMORY_NAMES, STAGE_MEMORIES, VRFS, depth
from concord.spec.machine.config import Config

LSTM = """
s_wr Columns, {columns}
loop {steps}
s_wr Rows, {hidden}
v_rd NetQ
v_wr InitialVrf, 0
end_chain
s_wr Rows, {gates}
v_rd InitialVrf, 0
mv_mul 0
v_wr MvmQ
end_chain
s_wr Rows, {hidden}
v_rd MvmQ
vv_add0 0
v_sigm0
vv_mul0 0
v_wr AddSubVrf1, 0
end_chain
v_rd MvmQ
vv_add0 {words}
v_sigm0
v_wr MultiplyVrf0, {words}
end_chain
v_rd MvmQ
vv_add0 {words2}
v_sigm0
v_wr MultiplyVrf1, 0
end_chain
v_rd MvmQ
vv_add0 {words3}
v_tanh0
vv_mul0 {words}
vv_add1 0
v_wr MultiplyVrf0, 0
v_tanh1
vv_mul1 0
v_wr InitialVrf, {words}
v_wr NetQ
end_chain
end_loop
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """A program and the machine that runs it.

    Attributes:
        config:      Configuration of the machine.
        text:        Program text, without `end`.
        input_words: Number of words that the program takes from NetQ.
    """

    config: Config
    text: str
    input_words: int = 0

    def messages(self) -> list[bytes]:
        """Messages with random dense tiles, random vectors, the program, and its input."""
        config, rng = self.config, np.random.default_rng(0)
        size = config.native_dim
        weights = config.weights
        mantissas = rng.integers(1, weights.highest + 1, (config.matrix_tiles, size, size))
        exponents = np.zeros((config.matrix_tiles, size), int)
        messages = [packed_message(config, mantissas, exponents)]
        messages += [write_message(config, mem, _numbers(rng, depth(config, mem), config)) for mem in VRFS]
        messages.append(program_message(config, assemble(self.text + "end")))
        return messages + [input_message(config, _numbers(rng, self.input_words, config))] * bool(self.input_words)


def _numbers(rng, count: int, config: Config) -> np.ndarray:
    return rng.uniform(-1, 1, (count, config.mfu_lanes)).astype(np.float16).view(np.uint16)


def deep(config: Config, *, tiles: int, hidden: int) -> Config:
    """A copy of `config` with memory for `tiles` tiles, and for LSTMs of `hidden` cells."""
    words = hidden // config.mfu_lanes
    return replace(
        config, matrix_tiles=max(config.matrix_tiles, tiles), mvmq_words=max(config.mvmq_words, 4 * words),
        initial_vrf=max(config.initial_vrf, 2 * words), addsub_vrf=max(config.addsub_vrf, 4 * words),
        multiply_vrf=max(config.multiply_vrf, 2 * words))


def products(config: Config, *, size: int, count: int) -> Workload:
    """`count` independent products of `size` x `size`, each with its own matrix, operand and result."""
    words, columns = size // config.mfu_lanes, size // config.native_dim
    slots = max(1, config.initial_vrf // words)
    chains = [f"v_rd InitialVrf, {k % slots * words}\nmv_mul {k * columns ** 2}\nv_wr {target}\nend_chain\n"
              for k, target in zip(range(count), _targets(config, words), strict=False)]
    return Workload(config=config, text=f"s_wr Rows, {size}\ns_wr Columns, {columns}\n" + "".join(chains))


def _targets(config: Config, words: int):
    """An endless sequence of addresses for results."""
    while True:
        for mem in STAGE_MEMORIES:
            for index in range(depth(config, mem) // words):
                yield f"{MEMORY_NAMES[mem]}, {index * words}"


def lstm(config: Config, *, hidden: int, steps: int) -> Workload:
    """`steps` steps of an LSTM with as many inputs as cells; its four gates are one tall product."""
    words = hidden // config.mfu_lanes
    return Workload(config=config, input_words=steps * words, text=LSTM.format(
        hidden=hidden, steps=steps, columns=2 * hidden // config.native_dim, gates=4 * hidden, words=words,
        words2=2 * words, words3=3 * words))


def overlapping(config: Config) -> tuple[Workload, Workload]:
    """A product, and point-wise operations that do not depend on it."""
    columns = 8
    rows = min(config.accumulator_rows, config.matrix_tiles // columns * config.native_dim, 512)
    words = rows // config.mfu_lanes
    push = (f"s_wr Rows, {rows}\ns_wr Columns, {columns}\nv_rd InitialVrf, 0\nmv_mul 0\nv_wr MvmQ\nend_chain\n")
    chain = f"v_rd AddSubVrf0, 0\nvv_add0 {words}\nv_tanh1\nv_wr AddSubVrf1, 0\nend_chain\n"
    return (Workload(config=config, text=push), Workload(config=config, text=f"s_wr Rows, {rows}\n" + chain * 2))


def both(first: Workload, second: Workload) -> Workload:
    """Both programs, one after the other."""
    return Workload(
        config=first.config, text=first.text + second.text, input_words=first.input_words + second.input_words)
