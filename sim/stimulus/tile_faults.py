"""Faults in chains that make tiles of vectors, and in tiles that base registers move, as texts by their error."""

from concord.spec.isa.instructions import FIELDS, LONG_BITS, Error, Op
from concord.spec.isa.memories import MEMORY_NAMES, VRFS, Mem, depth
from concord.spec.machine.config import Config

_HIGH = (1 << LONG_BITS) - 1  #: Largest value of a base register.


def tile_faults(config: Config, error: Error) -> list[str]:
    """Texts that stop a machine with Dram with `error`, in registers that move one word; none for some errors."""
    return [f"{text}\n" for text in _FAULTS[error](config)] if error in _FAULTS else []


def _tile(source: str, target: str = "0") -> str:
    return f"{source}\nm_wr MatrixRf, {target}\nend_chain"


def _illegal(_):
    transposed = FIELDS["transposed"].put(1)
    return [
        _tile("m_rd NetQ", "0, transposed"), _tile("m_rd Dram, 0", "0, transposed"),
        _tile("m_rd InitialVrf, 0", "0, diagonal"), "m_rd InitialVrf, 0\nv_wr NetQ", "m_rd AddSubVrf0, 0\nend_chain",
        "m_rd InitialVrf, 0\nv_relu0", "v_rd InitialVrf, 0\nm_wr MatrixRf, 0, transposed",
        "m_rd InitialVrf, 0\nm_wr MatrixRf, 0\nm_wr MatrixRf, 1",
        f".word {Op.V_RD | Mem.INITIAL_VRF << 16 | transposed}", f"v_rd NetQ\n.word {Op.MV_MUL | transposed}",
        f".word {Op.M_RD | Mem.MVM_Q << 16}"]


def _size(config):
    n = config.native_dim
    return [f"s_wr Rows, {n + 1}\n{_tile('m_rd InitialVrf, 0')}",
            f"set_iterations {n + 1}\n{_tile('m_rd InitialVrf, 0')}",
            f"set_iterations {2 * n + 2}, {n + 1}\n{_tile('m_rd InitialVrf, 0')}",
            f"s_wr IterationsX, 0\n{_tile('m_rd InitialVrf, 0')}", f"s_wr Rows, 0\n{_tile('m_rd InitialVrf, 0')}"]


def _align(config):
    size = config.vector_words
    if size == 1:
        return []
    whole = f"s_wr Rows, {config.native_dim}\n"
    return [whole + _tile("m_rd InitialVrf, 1"), f"s_wr Base1, 1\n{whole}{_tile('m_rd AddSubVrf1, 0 + Base1')}",
            f"s_wr StrideX, {size + 1}\n{_tile('m_rd_inc InitialVrf, 0')}",
            f"s_wr StrideY, 1\n{_tile('m_rd_inc InitialVrf, 0')}",
            (f"s_wr Rows, {config.native_dim - config.mfu_lanes}\ns_wr Base1, 0\nloop 4\n"
             f"{_tile('m_rd MultiplyVrf0, 0 + Base1')}\ns_add Base1, 1\nend_loop")]


def _range(config):
    tiles, size = config.matrix_tiles, config.vector_words
    texts = [_tile(f"m_rd {MEMORY_NAMES[mem]}, {depth(config, mem)}") for mem in VRFS]
    texts += [f"set_iterations 2\ns_wr StrideX, {size}\n" + _tile(
        f"m_rd_inc {MEMORY_NAMES[mem]}, {depth(config, mem) - size}") for mem in VRFS]
    return texts + [
        f"set_iterations 4, 2\ns_wr StrideY, {size}\n{_tile(f'm_rd_inc InitialVrf, {config.initial_vrf - size}')}",
        _tile("m_rd InitialVrf, 0", str(tiles)), f"set_iterations 4, 2\n{_tile('m_rd InitialVrf, 0', str(tiles - 1))}",
        f"s_wr Base1, {tiles}\n{_tile('m_rd InitialVrf, 0', '0 + Base1')}",
        f"s_wr Base1, {tiles}\n{_tile('m_rd NetQ', '0 + Base1')}",
        f"s_wr Base2, {_HIGH}\n{_tile('m_rd NetQ', '2 + Base2')}",
        f"s_wr Base2, {tiles - 1}\nv_rd NetQ\nmv_mul 1 + Base2\nv_wr NetQ\nend_chain",
        f"s_wr Base2, {_HIGH}\nv_rd NetQ\nmv_mul 1 + Base2\nv_wr NetQ\nend_chain",
        f"s_wr Base3, {tiles - 3}\nloop 4\n{_tile('m_rd InitialVrf, 0', '0 + Base3')}\ns_add Base3, 1\nend_loop"]


def _format(_):
    made = _tile("m_rd InitialVrf, 0", "{}")
    return [f"{made.format('2, integer')}\nv_rd NetQ\nmv_mul 2\nv_wr NetQ\nend_chain",
            f"{made.format('2')}\nv_rd NetQ\nmv_mul 2, integer\nv_wr NetQ\nend_chain",
            (f"{made.format('3, integer')}\n{made.format('2')}\ns_wr Base1, 1\nloop 2\nv_rd NetQ\nmv_mul 1 + Base1\n"
             "v_wr NetQ\nend_chain\ns_add Base1, 1\nend_loop")]


_FAULTS = {Error.ILLEGAL: _illegal, Error.SIZE: _size, Error.ALIGN: _align, Error.RANGE: _range,
           Error.FORMAT: _format, Error.WINDOW: lambda _: ["set_iterations 3, 2\n" + _tile("m_rd InitialVrf, 0")]}
