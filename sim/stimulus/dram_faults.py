"""Faults in the use of Dram, as texts by the error that they cause."""

from concord.sim.stimulus.tile_faults import tile_faults
from concord.spec.isa.dram import bias_words, entries_words, tile_words
from concord.spec.isa.instructions import LONG_BITS, Error

_OUT = "v_wr NetQ\nend_chain"
_HIGH = (1 << LONG_BITS) - 1  #: Largest value of a base register.


def dram_faults(generator, error: Error) -> list[str]:
    """Texts that stop a machine with `error`; none where it has no Dram.

    What runs before the fault touches the region of the generator's program alone.
    """
    if not generator.config.dram_words:
        return []
    return (_FAULTS[error](generator) if error in _FAULTS else []) + tile_faults(generator.config, error)


def _illegal(generator):
    entries = [
        "v_rd Dram, 0, raw\nv_wr VectorRf, 0, integer, unsigned", "v_rd VectorRf, 0\nv_wr NetQ\nv_wr Dram, 0, raw",
        "v_rd VectorRf, 0\nv_wr Dram, 0, raw\nv_wr NetQ", "v_rd VectorRf, 0, integer, unsigned\nv_wr Dram, 0, raw",
        "v_rd Dram, 0, raw\nv_wr VectorRf, 0\nv_wr NetQ", "v_rd Dram, 0\nv_pool_max",
    ] if generator.config.vector_rf else []
    return [
        *entries, "v_rd Dram, 0\nmv_mul 0", "v_rd Dram, 0, raw\nmv_mul 0",
        "v_rd Dram, 0, raw\nv_wr NetQ", "v_rd Dram, 0, raw\nv_relu0", "v_rd Dram, 0, raw\nv_wr Dram, 9",
        "v_rd Dram, 0, raw\nend_chain", "v_rd NetQ\nv_wr Dram, 0, raw", "v_rd Dram, 0\nv_wr Dram, 9, raw",
        "v_rd NetQ\nv_wr BiasRf, 0", "v_rd Dram, 0\nv_wr BiasRf, 0", "v_rd NetQ\nv_relu0\nv_wr BiasRf, 0",
        "v_rd Dram, 0, raw\nv_wr BiasRf, 0\nv_wr NetQ", "v_rd NetQ\nv_wr Dram, 0\nv_wr Dram, 9",
        "m_rd NetQ\nm_wr MatrixRf, 0, diagonal", "m_rd Dram, 0\nv_wr NetQ", "m_rd Dram, 0\nend_chain",
        f".word {1 | 1 << 16 | 1 << 24}", f".word {1 | 6 << 16 | 1 << 24}", f".word {2 | 11 << 16 | 1 << 24}",
        f".word {23 | 1 << 16 | 1 << 48}", f".word {1 | 11 << 16 | 1 << 9}", f".word {2 | 6 << 16 | 1 << 32}",
        f".word {20 | 8 << 16}", f".word {1 | 9 << 16}"]


def _range(generator):
    config, region = generator.config, generator.placement.outside.region
    size, n, first = config.dram_words, config.native_dim, generator.placement.outside.free.start
    here = f"s_wr Base1, {first}\n"

    def near(below: int) -> str:
        return f"s_wr Base1, {max(0, size - below - 9)}\n"  # the address 9 + Base1 lies `below` words before the end

    modes = ("", ", integer", ", diagonal", ", integer, diagonal")
    tiles = [tile_words(config, integer="integer" in mode, diagonal="diagonal" in mode) for mode in modes]
    texts = [
        f"{near(0)}v_rd Dram, 9 + Base1\n{_OUT}", f"{near(0)}v_rd NetQ\nv_wr Dram, 9 + Base1\nend_chain",
        f"{near(3)}set_iterations 4, 2\ns_wr StrideX, 2\ns_wr StrideY, 3\nv_rd_inc Dram, 9 + Base1\n{_OUT}",
        f"{near(3)}set_iterations 4, 2\ns_wr StrideOut, 1\nv_rd NetQ\nv_wr_inc Dram, 9 + Base1\nend_chain",
        f"s_wr Base1, {_HIGH}\nv_rd Dram, 9 + Base1\n{_OUT}",
        f"s_wr Base1, {_HIGH}\nv_rd NetQ\nv_wr Dram, 9 + Base1\nend_chain",
        f"s_wr Base2, {_HIGH}\ns_add Base2, 1", "s_wr Base3, 70000\ns_add Base3, -70001",
        f"s_wr Base2, {_HIGH - 5}\nloop 4\ns_add Base2, 2\nend_loop\nend",
        (f"{near(2 * bias_words(1) - 1)}set_iterations 2\ns_wr StrideX, 2\nv_rd_inc Dram, 9 + Base1, raw\n"
         "v_wr BiasRf, 0\nend_chain"),
        f"v_rd Dram, 0, raw\nv_wr BiasRf, {config.bias_words}\nend_chain",
        f"set_iterations 2\ns_wr StrideOut, {config.bias_words}\nv_rd Dram, 0, raw\nv_wr_inc BiasRf, 0\nend_chain",
        *(f"{near(2 * words - 1)}set_iterations 2\nm_rd_inc Dram, 9 + Base1\nm_wr MatrixRf, 0{mode}\nend_chain"
          for mode, words in zip(modes, tiles, strict=True)),
        f"m_rd Dram, 0\nm_wr MatrixRf, {config.matrix_tiles}\nend_chain",
        f"{here}v_rd Dram, 1 + Base1\nv_wr Dram, 1 + Base1\nend_chain",
        f"{here}v_rd Dram, 1 + Base1\nvv_add0 0\nv_wr NetQ\nv_relu1\nv_wr Dram, 1 + Base1\nend_chain",
        f"{here}set_iterations 3\ns_wr StrideX, 2\nv_rd_inc Dram, 0 + Base1\nv_wr Dram, 3 + Base1\nend_chain",
        f"{here}set_iterations 3\ns_wr StrideOut, 2\nv_rd Dram, 5 + Base1\nv_wr_inc Dram, 2 + Base1\nend_chain",
        (f"{here}s_wr Base2, {first + 2}\nloop 3\nv_rd Dram, 0 + Base1\nv_wr Dram, 0 + Base2\nend_chain\n"
         "s_add Base2, -1\nend_loop\nend")]
    if region.stop == size:
        texts.append(f"s_wr Base2, {size - 4}\nloop 5\nv_rd NetQ\nv_wr Dram, 0 + Base2\nend_chain\n"
                     "s_add Base2, 1\nend_loop\nend")
    if config.vector_rf:
        for mode, integer in (("", False), (", integer", True)):
            words = entries_words(config, 2, integer=integer)
            rows = f"s_wr Rows, {n + 1}\n"
            texts += [f"{rows}{near(words - 1)}v_rd Dram, 9 + Base1, raw\nv_wr VectorRf, 0{mode}\nend_chain",
                      f"{rows}{near(words - 1)}v_rd VectorRf, 0{mode}\nv_wr Dram, 9 + Base1, raw\nend_chain",
                      f"{rows}v_rd Dram, 0, raw\nv_wr VectorRf, {config.vector_rf - 1}{mode}\nend_chain",
                      f"{rows}v_rd VectorRf, {config.vector_rf - 1}{mode}\nv_wr Dram, 0, raw\nend_chain"]
    return texts


def _size(generator):
    return ["s_wr Rows, 0\nm_rd Dram, 0\nm_wr MatrixRf, 0\nend_chain", f"s_wr Iterations, 0\nv_rd Dram, 0\n{_OUT}",
            "s_wr IterationsX, 0\nv_rd Dram, 0, raw\nv_wr BiasRf, 0\nend_chain"]


def _format(generator):
    """A write of unsigned codes to VectorRf that are no integers."""
    return [f"v_rd Dram, 0\n.word {20 | 10 << 16 | 1 << 11}"] * bool(generator.config.vector_rf)


_FAULTS = {Error.ILLEGAL: _illegal, Error.RANGE: _range, Error.SIZE: _size,
           Error.WINDOW: lambda _: [f"set_iterations 3, 2\nv_rd Dram, 0\n{_OUT}",
                                    "set_iterations 3, 2\nm_rd Dram, 0\nm_wr MatrixRf, 0\nend_chain"],
           Error.FORMAT: _format}
