"""The memories of a stand, as golden has them: brings them to the state of golden's core, and compares them with it."""

import numpy as np
from concord.golden.trainer.core import TrainerCore
from concord.hw.trainer.wires import ChipRead, ChipWrite, RowAdd
from concord.sim.drivers.bench import assert_equal, pack
from concord.sim.drivers.stream import clock
from concord.spec.numbers.lazy import ACCUMULATOR_BITS
from concord.spec.trainer.config import LANES

_SUM_BYTES = ACCUMULATOR_BITS // 8


class Memories:
    """On-chip memory and accumulators of a `Stand`. The engine must rest while they are written or read.

    Args:
        dut:  Handle of the stand.
        core: Golden's core. Its sizes are those of the stand, and both begin with zeros.
    """

    def __init__(self, dut, core: TrainerCore):
        self.dut, self.core = dut, core
        self.chip, self.rows = np.zeros_like(core.chip), np.zeros_like(core.accumulators)
        for name in ("peek", "poke", "row_peek", "row_poke"):
            getattr(dut, f"{name}__valid").value = 0
        dut.refused.value = 0

    async def write(self):
        """Write what golden holds."""
        words = np.flatnonzero((self.chip != self.core.chip).any(1))
        rows = np.flatnonzero((self.rows != self.core.accumulators).any(1))
        new = {"row": rows, "sums": self.core.accumulators[rows]}
        marks = dict.fromkeys(("fresh", "lanes", "plain"), np.ones(len(rows), int))
        await self._put("poke", pack(ChipWrite, {"word": words, "bytes": self.core.chip[words]}))
        await self._put("row_poke", pack(RowAdd, new | marks))
        await clock(self.dut, 2 * LANES)
        self.chip[:], self.rows[:] = self.core.chip, self.core.accumulators

    async def check(self, **inputs):
        """Compare all words and rows with golden; `inputs` are shown where they differ."""
        await self.read()
        assert_equal("word of the chip", self.chip, self.core.chip, **inputs)
        assert_equal("row of the accumulators", self.rows, self.core.accumulators, **inputs)

    async def read(self):
        """Read all words and rows into `chip` and `rows`."""
        found = await self._get("peek", pack(ChipRead, {"word": range(len(self.chip))}), LANES)
        sums = await self._get("row_peek", list(range(len(self.rows))), self.rows.shape[1] * _SUM_BYTES)
        self.chip[:], self.rows[:] = found, _sums(sums)

    async def _put(self, name: str, payloads: list[int]):
        valid, port = getattr(self.dut, f"{name}__valid"), getattr(self.dut, f"{name}__payload")
        for payload in payloads:
            valid.value, port.value = 1, payload
            await clock(self.dut)
            assert getattr(self.dut, f"{name}__ready").value
        valid.value = 0

    async def _get(self, name: str, payloads: list[int], size: int) -> np.ndarray:
        """The answers, uint8[len(payloads), size]."""
        valid, port = getattr(self.dut, f"{name}__valid"), getattr(self.dut, f"{name}__payload")
        answer, found, asked = getattr(self.dut, f"{name}ed"), [], iter(payloads)
        while len(found) < len(payloads):
            payload = next(asked, None)
            valid.value, port.value = int(payload is not None), payload or 0
            await clock(self.dut)
            taken = int(answer.value)
            if taken & 1:
                found.append((taken >> 1).to_bytes(size, "little"))
        return np.frombuffer(b"".join(found), np.uint8).reshape(len(payloads), size)


def _sums(rows: np.ndarray) -> np.ndarray:
    """int64[rows, 17] of the bytes of rows."""
    parts = rows.reshape(len(rows), -1, _SUM_BYTES)
    wide = np.concatenate([parts, np.repeat(parts[..., -1:] >> 7, 8 - _SUM_BYTES, -1) * np.uint8(255)], -1)
    return wide.copy().view("<i8")[..., 0]
