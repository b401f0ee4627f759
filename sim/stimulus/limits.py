"""Programs that are just within the limits of a machine, or one step beyond."""

from concord.spec.isa.dram import entries_words, tile_words
from concord.spec.isa.instructions import LONG_BITS, LOOP_DEPTH, SPECS
from concord.spec.isa.memories import MEMORY_NAMES, VRFS, depth
from concord.spec.machine.config import Config

_OUT = "v_wr NetQ\nend_chain\n"
_TWICE = "set_iterations 2\n"
_INTEGER = "m_rd NetQ\nm_wr MatrixRf, 0, integer\nend_chain\n"


def limits(config: Config, beyond: int) -> list[str]:
    """Texts of programs that are legal if `beyond` is 0, and illegal if it is 1."""
    tiles, rows = config.matrix_tiles, min(config.accumulator_rows, config.matrix_tiles * config.native_dim)
    columns = min(config.operand_columns, tiles)
    push = f"v_rd NetQ\nmv_mul {tiles - 1}\nv_wr MvmQ\nend_chain\n"
    bodies = [
        f"v_rd NetQ\nmv_mul {tiles - 1 + beyond}\n{_OUT}",
        f"s_wr Columns, {columns + beyond}\nv_rd NetQ\nmv_mul {tiles - columns}\n{_OUT}",
        f"s_wr Rows, {rows + beyond}\nv_rd NetQ\nmv_mul 0\n{_OUT}",
        f"{_INTEGER}v_rd NetQ\nmv_mul 0, integer, bias {config.bias_words - 1 + beyond}\n{_OUT}",
        f"{_TWICE}m_rd NetQ\nm_wr MatrixRf, {tiles - 2 + beyond}\nend_chain\n",
        f"set_iterations {config.mvmq_words - 1}\n{push}set_iterations {1 + beyond}\n{push}",
        f"set_iterations 3\n{push}set_iterations {3 + beyond}\nv_rd MvmQ\n{_OUT}",
        f"{push}v_rd MvmQ\n{_OUT}{push * beyond}v_rd NetQ\nmv_mul 0\n{_OUT}",
        "loop 1\n" * (LOOP_DEPTH + beyond) + f"v_rd NetQ\n{_OUT}" + "end_loop\n" * (LOOP_DEPTH + beyond),
        "v_rd NetQ\n" + "".join(f"v_wr {MEMORY_NAMES[mem]}, 0\n" for mem in VRFS[:2 + beyond]) + _OUT,
        f"v_rd NetQ\nvv_add0 0\n{'vv_max0' if beyond else 'vv_max1'} 0\n{_OUT}",
        f"set_iterations 6, {3 + beyond}\nv_rd NetQ\n{_OUT}",
    ]
    for mem in VRFS:
        name, last = MEMORY_NAMES[mem], depth(config, mem) - 1 + beyond
        bodies += [f"v_rd {name}, {last}\n{_OUT}", f"v_rd NetQ\nv_wr {name}, {last}\nend_chain\n",
                   f"s_wr StrideX, 2\ns_wr StrideY, 5\nset_iterations 4, 2\nv_rd_inc {name}, {last - 7}\n{_OUT}",
                   f"{_TWICE}s_wr StrideOut, 3\nv_rd NetQ\nv_wr_inc {name}, {last - 3}\nend_chain\n"]
    for op, spec in SPECS.items():
        if spec.operand is not None:
            bodies.append(f"v_rd NetQ\n{op.name.lower()} {depth(config, spec.operand) - 1 + beyond}\n{_OUT}")
    if config.softmax_words:
        rows = config.softmax_words * config.mfu_lanes + beyond
        bodies.append(f"s_wr Rows, {rows}\nv_rd NetQ\nv_softmax\n{_OUT}")
    if config.vector_rf:
        bodies += _entries(config, beyond)
    if config.dram_words:
        bodies += _outside(config, beyond)
    return [f"s_wr Rows, {config.mfu_lanes}\ns_wr StrideOut, 1\n{body}end\n" for body in bodies]


def _entries(config: Config, beyond: int) -> list[str]:
    """Bodies that use VectorRf, windows and the pooling unit."""
    last = config.vector_rf - 1 + beyond
    rows = f"s_wr Rows, {config.native_dim + 1}\n"
    window = "s_wr WindowX, 3\ns_wr WindowY, 2\ns_wr WindowStep, 2\ns_wr WindowPitch, 3\n"  # 8 positions
    moved = "set_iterations 4, 2\ns_wr StrideX, 2\ns_wr StrideY, 5\n"  # 7 further ones
    written = "set_iterations 4, 2\ns_wr StrideVec, 2\ns_wr SkipVec, 3\n"  # 9 further ones
    bodies = [
        f"v_rd VectorRf, {last}\n{_OUT}", f"{rows}v_rd VectorRf, {last - 1}\n{_OUT}",
        f"v_rd NetQ\nv_wr VectorRf, {last}\nend_chain\n", f"{rows}v_rd NetQ\nv_wr VectorRf, {last - 1}\nend_chain\n",
        f"{moved}v_rd_inc VectorRf, {last - 7}\nmv_mul 0\n{_OUT}",
        f"s_wr Columns, 2\nv_rd VectorRf, {last - 1}\nmv_mul 0\n{_OUT}",
        f"{window}s_wr Columns, 6\nv_rd VectorRf, {last - 7}\nmv_mul 0, window\n{_OUT}",
        f"{window}s_wr Columns, {6 + beyond}\nv_rd VectorRf, 0\nmv_mul 0, window\n{_OUT}",
        f"{rows}s_wr WindowGroup, 5\nv_rd VectorRf, {last - 5}\nmv_mul 0, window\n{_OUT}",
        f"{window}{moved}v_rd_inc VectorRf, {last - 14}\nv_pool_max\n{_OUT}",
        f"{written}v_rd NetQ\nv_wr_inc VectorRf, {last - 9}\nend_chain\n",
        f"v_rd VectorRf, {beyond}\nmv_mul 0\nv_wr NetQ\nv_wr VectorRf, 1\nend_chain\n",
        f"s_wr Columns, {2 + beyond}\nv_rd VectorRf, 1\nmv_mul 0\nv_wr NetQ\nv_wr VectorRf, 3\nend_chain\n",
        f"s_wr Columns, {config.operand_columns + 1}\nv_rd {'NetQ' if beyond else 'VectorRf, 0'}\nmv_mul 0\n{_OUT}",
    ]
    for mem in VRFS:
        name, end = MEMORY_NAMES[mem], depth(config, mem) - 1 + beyond
        bodies += [f"{window}v_rd {name}, {end - 7}\nv_pool_max\n{_OUT}",
                   f"{window}v_rd {name}, 1\nv_pool_max\nv_wr {name}, {9 - beyond}\nend_chain\n"]
    return bodies


def _outside(config: Config, beyond: int) -> list[str]:
    """Bodies that use Dram up to its end, base registers up to theirs, or write beside what they read."""
    last, tiles = config.dram_words - 1 + beyond, config.matrix_tiles
    rows = min(config.accumulator_rows, tiles * config.native_dim)
    base = f"s_wr Base2, {last - 99}\n"  # 99 + Base2 is the last word
    moved = "set_iterations 4, 2\ns_wr StrideX, 2\ns_wr StrideY, 5\n"  # 7 further words
    bodies = [
        f"{base}v_rd Dram, 99 + Base2\n{_OUT}", f"{base}v_rd NetQ\nv_wr Dram, 99 + Base2\nend_chain\n",
        f"{base}{moved}v_rd_inc Dram, 92 + Base2\n{_OUT}",
        f"{base}v_rd Dram, 98 + Base2, raw\nv_wr BiasRf, 0\nend_chain\n",
        f"{base}{moved}v_rd_inc Dram, 91 + Base2, raw\nv_wr BiasRf, 0\nend_chain\n",
        f"{_TWICE}s_wr StrideOut, 3\n{base}v_rd NetQ\nv_relu1\nv_wr_inc Dram, 96 + Base2\nv_wr NetQ\nend_chain\n",
        f"{_TWICE}s_wr StrideOut, 3\nv_rd Dram, 0, raw\nv_wr_inc BiasRf, {config.bias_words - 4 + beyond}\nend_chain\n",
        f"{_TWICE}m_rd Dram, 0\nm_wr MatrixRf, {tiles - 2 + beyond}\nend_chain\n",
        f"v_rd Dram, 1\nv_wr Dram, {2 - beyond}\nend_chain\n",
        f"v_rd Dram, 5\nv_relu0\nv_wr Dram, {4 + beyond}\n{_OUT}",
        f"s_wr Base1, {(1 << LONG_BITS) - 2 + beyond}\ns_add Base1, 1\n",
        f"s_wr Base1, 70000\ns_add Base1, {-70000 - beyond}\n"]
    if beyond and rows >= 8 * config.mfu_lanes:  # 2^18 words, far more than MvmQ has
        bodies.append(f"s_wr Rows, {8 * config.mfu_lanes}\nset_iterations {1 << 15}\nv_rd InitialVrf, 0\nmv_mul 0\n"
                      "v_wr MvmQ\nend_chain\n")
    bodies += _vectors(config, beyond)
    for integer in (False, True):
        mode = ", integer" * integer
        for diagonal in (False, True):
            words = tile_words(config, integer=integer, diagonal=diagonal)
            bodies.append(f"s_wr Base1, {last + 1 - 3 * words}\nset_iterations 3\nm_rd_inc Dram, 0 + Base1\n"
                          f"m_wr MatrixRf, 0{mode}{', diagonal' * diagonal}\nend_chain\n")
        if config.vector_rf:
            words = entries_words(config, 2, integer=integer)
            there = (f"s_wr Rows, {config.native_dim + 1}\ns_wr Base1, {last + 1 - words - 3}\n"
                     f"{_TWICE}s_wr StrideX, 3\ns_wr StrideOut, 3\n")
            bodies += [f"{there}v_rd_inc Dram, 0 + Base1, raw\nv_wr VectorRf, 0{mode}\nend_chain\n",
                       f"{there}v_rd VectorRf, 0{mode}\nv_wr_inc Dram, 0 + Base1, raw\nend_chain\n"]
    return bodies


def _vectors(config, beyond):
    """Bodies that make tiles of vectors, as large and as far as they may be."""
    n, size, tiles, last = config.native_dim, config.vector_words, config.matrix_tiles, config.initial_vrf - 1
    first = (last - size * 3 + 1) // size * size  # three native vectors before the end
    wide = [f"s_wr Rows, {n - config.mfu_lanes + 1}\nm_rd InitialVrf, {beyond}\nm_wr MatrixRf, 0\nend_chain\n",
            (f"s_wr Rows, {n}\ns_wr StrideX, {size + beyond}\nm_rd_inc InitialVrf, 0\nm_wr MatrixRf, 0\n"
             "end_chain\n")] if size > 1 else []
    return [
        *wide, f"s_wr Rows, {n + beyond}\nm_rd InitialVrf, 0\nm_wr MatrixRf, 0\nend_chain\n",
        f"s_wr Rows, 1\nset_iterations {n + beyond}\nm_rd InitialVrf, 0\nm_wr MatrixRf, 1, transposed\nend_chain\n",
        (f"s_wr Rows, {n}\nset_iterations 4, 2\ns_wr StrideX, {size}\ns_wr StrideY, {size}\n"
         f"m_rd_inc InitialVrf, {first + size * beyond}\nm_wr MatrixRf, 0\nend_chain\n"),
        f"set_iterations 4, 2\nm_rd InitialVrf, 0\nm_wr MatrixRf, {tiles - 2 + beyond}\nend_chain\n",
        f"s_wr Base1, {tiles - 1 + beyond}\nv_rd NetQ\nmv_mul 0 + Base1\n{_OUT}"]
