"""Faults in the use of VectorRf, windows and the pooling unit, as texts by the error that they cause."""

from concord.spec.isa.instructions import Error, Op
from concord.spec.isa.memories import MEMORY_NAMES, VRFS, Mem, depth

_OUT = "v_wr NetQ\nend_chain"
_INTEGER, _UNSIGNED = 1 << 9, 1 << 11  # flags of the instruction word


def entry_faults(generator, error: Error, product: str) -> list[str]:
    """Texts that stop a machine with `error`; none where it has no VectorRf, except for uses of VectorRf itself.

    Args:
        generator: Generator of the program before the fault.
        product:   Operands of an `mv_mul` of one tile.
    """
    if generator.config.vector_rf:
        return _FAULTS[error](generator, product) if error in _FAULTS else []
    absent = [f"v_rd VectorRf, 0\n{_OUT}", "v_rd NetQ\nv_wr VectorRf, 0\nend_chain",
              f"v_rd InitialVrf, 0\nv_pool_max\n{_OUT}", "v_pool_max", f"v_rd VectorRf, 0\nmv_mul {product}\n{_OUT}"]
    return absent if error == Error.RANGE else []


def _word(op, mem, flags=0):
    return f".word {int(op) | int(mem) << 16 | flags}"


def _illegal(generator, product):
    name = MEMORY_NAMES[VRFS[generator.rng.integers(len(VRFS))]]
    return [
        _word(Op.V_RD, Mem.NET_Q, _INTEGER), _word(Op.V_RD, Mem.INITIAL_VRF, _UNSIGNED),
        f"v_rd NetQ\n{_word(Op.V_WR, Mem.ADDSUB_VRF1, _INTEGER)}", f"v_rd VectorRf, 0, integer\nmv_mul {product}",
        f"v_rd {name}, 0\nmv_mul {product}, window", f"v_rd NetQ\nmv_mul {product}, window", "v_rd NetQ\nv_pool_max",
        "v_rd MvmQ\nv_pool_max", f"v_rd {name}, 0\nv_relu0\nv_pool_max", "v_rd VectorRf, 0\nv_wr NetQ\nv_pool_max",
        f"v_rd VectorRf, 0\nmv_mul {product}\nv_pool_max", f"v_rd {name}, 0\nv_pool_max\nv_pool_max",
        f"v_rd VectorRf, 0\nv_pool_max\nmv_mul {product}", "m_rd NetQ\nv_pool_max", "v_pool_max",
        "v_rd NetQ\nv_wr VectorRf, 0\nv_wr VectorRf, 0, integer"]


def _range(generator, product):
    config, rng = generator.config, generator.rng
    size, mem = config.vector_rf, VRFS[rng.integers(len(VRFS))]
    name, words = MEMORY_NAMES[mem], depth(config, mem)
    mode = str(rng.choice(("", ", integer", ", integer, unsigned")))
    window = "s_wr Columns, 4\ns_wr WindowX, 2\ns_wr WindowY, 2\ns_wr WindowStep, 2\ns_wr WindowPitch, 3\n"
    moved = f"set_iterations 6, 3\ns_wr StrideX, {size // 4 + 1}\ns_wr StrideY, {size // 2}\n"
    overlaps = [f"v_rd VectorRf, 0\nmv_mul {product}\nv_wr NetQ\nv_wr VectorRf, 0\nend_chain",
                f"v_rd VectorRf, {size - 1}{mode}\nv_wr VectorRf, {size - 1}\nend_chain",
                (f"set_iterations 2\ns_wr StrideVec, 1\nv_rd VectorRf, {size - 1}\n"
                 f"v_wr_inc VectorRf, {max(size - 2, 0)}\nend_chain"),
                f"s_wr WindowX, 2\ns_wr WindowStep, 3\nv_rd {name}, 0\nv_pool_max\nv_wr {name}, 2\nend_chain",
                (f"s_wr WindowY, 2\ns_wr WindowPitch, 3\nv_rd VectorRf, 0\nv_pool_max\n"
                 f"v_wr VectorRf, 3{mode}\nend_chain")]
    overlaps.append("s_wr Base1, 2\nloop 2\nv_rd VectorRf, 0\nv_wr VectorRf, 0 + Base1\nend_chain\n"
                    "s_add Base1, -2\nend_loop\nend")
    return [
        f"v_rd VectorRf, {size}\nmv_mul {product}\n{_OUT}", f"v_rd VectorRf, {size}{mode}\n{_OUT}",
        f"v_rd NetQ\nv_wr VectorRf, {size}{mode}\nend_chain", f"{moved}v_rd_inc VectorRf, 0{mode}\n{_OUT}",
        f"s_wr Columns, 2\nv_rd VectorRf, {size - 1}\nmv_mul 0\n{_OUT}",
        f"s_wr Rows, {config.native_dim + 1}\nv_rd VectorRf, {size - 1}\n{_OUT}",
        f"s_wr Rows, {config.native_dim + 1}\nv_rd NetQ\nv_wr VectorRf, {size - 1}\nend_chain",
        (f"set_iterations 4, 2\ns_wr StrideVec, 1\ns_wr SkipVec, 2\nv_rd NetQ\n"
         f"v_wr_inc VectorRf, {max(size - 5, 0)}\nend_chain"),
        f"{window}v_rd VectorRf, {max(size - 5, 0)}\nmv_mul 0, window\n{_OUT}",
        f"{window}s_wr Columns, 1\nv_rd VectorRf, {max(size - 5, 0)}\nv_pool_max\n{_OUT}",
        f"{window}s_wr Columns, 1\nv_rd {name}, {max(words - 5, 0)}\nv_pool_max\n{_OUT}",
        (f"s_wr Rows, {config.native_dim + 1}\ns_wr WindowGroup, 3\nv_rd VectorRf, {max(size - 3, 0)}\n"
         f"mv_mul 0, window\n{_OUT}"),
        *overlaps]


def _size(generator, product):
    sizes = [f"s_wr {name}, 0\nv_rd VectorRf, 0\nmv_mul {product}, window\n{_OUT}"
             for name in ("WindowVectors", "WindowX", "WindowY")]
    return [*sizes, f"s_wr WindowX, 0\nv_rd InitialVrf, 0\nv_pool_max\n{_OUT}",
            f"s_wr WindowY, 0\nv_rd VectorRf, 0\nv_pool_max\n{_OUT}"]


def _window(generator, product):
    texts = [f"s_wr {name}, 2\nv_rd VectorRf, 0\nmv_mul {product}, window\n{_OUT}"
             for name in ("WindowVectors", "WindowX", "WindowY", "Columns")]
    wraps = "s_wr WindowX, 256\ns_wr WindowY, 256\ns_wr WindowVectors, 1\n"  # 65536 columns, and not 0
    return [*texts, f"{wraps}v_rd VectorRf, 0\nmv_mul {product}, window\n{_OUT}",
            f"set_iterations 3, 2\nv_rd VectorRf, 0\nv_pool_max\n{_OUT}"]


def _format(generator, product):
    tile = int(generator.rng.integers(generator.config.matrix_tiles))
    other = f"{tile}{'' if generator.state().modes[tile] else ', integer'}"
    return [f"v_rd VectorRf, 0\nmv_mul {tile}, integer, unsigned\n{_OUT}", f"v_rd VectorRf, 0\nmv_mul {other}\n{_OUT}",
            _word(Op.V_RD, Mem.VECTOR_RF, _UNSIGNED), f"v_rd NetQ\n{_word(Op.V_WR, Mem.VECTOR_RF, _UNSIGNED)}"]


def _queue(generator, product):
    push = f"v_rd VectorRf, 0\nmv_mul {product}\nv_wr MvmQ\nend_chain\n"
    return [f"{push}v_rd VectorRf, 0\nmv_mul {product}\n{_OUT}"]


_FAULTS = {Error.ILLEGAL: _illegal, Error.RANGE: _range, Error.SIZE: _size, Error.WINDOW: _window,
           Error.FORMAT: _format, Error.QUEUE: _queue}
