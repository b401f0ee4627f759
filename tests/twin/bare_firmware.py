"""Firmware of program text alone, without contents of memories."""

import numpy as np
from concord.firmware.firmware import Firmware, Tiles
from concord.spec.isa.assembler import assemble
from concord.spec.machine.config import Config


def bare(config: Config, text: str, *, loop: int | None = None) -> Firmware:
    """Firmware whose tiles are in block floating point and zero; `loop` is the address of the loop over time steps."""
    n, tiles = config.native_dim, config.matrix_tiles
    return Firmware(
        name="bare", config=config, data="", classes=(), inputs=1, outputs=1, loop=loop, text=text,
        instruction_words=np.array(assemble(text), np.uint64), sections=(), vectors={},
        tiles=Tiles(mantissas=np.zeros((tiles, n, n), np.int16), integer=np.zeros(tiles, bool),
                    exponents=np.full((tiles, n), config.weights.e_min, np.int8)),
        biases=np.zeros((0, config.mfu_lanes), np.int32))
