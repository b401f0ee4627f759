"""Testbench of tests.mvm.test_float_products: every pair of codes against the products of golden's mantissas."""

import cocotb
import numpy as np
from amaranth.hdl import signed
from amaranth.lib import data
from concord.golden.mvm.elements import decode
from concord.sim.drivers.bench import assert_equal, pack, unpack
from concord.sim.drivers.stream import drive_pipeline
from concord.tests.mvm.test_float_products import COPIES, PAIRS, latency, product_bits


@cocotb.test()
async def every_product_is_golden(dut):
    """All 65,536 pairs of bytes, of which shorter codes take the low bits."""
    pairs = np.random.default_rng(0).permutation(1 << 16).reshape(-1, COPIES)
    ports = data.ArrayLayout(8, COPIES)
    given = {"w": pairs >> 8, "x": pairs & 255}
    got = await drive_pipeline(dut, {name: pack(ports, codes) for name, codes in given.items()},
                               [f"o{k}" for k in range(len(PAIRS))], latency())
    for k, fmts in enumerate(PAIRS):
        codes = [code & (1 << fmt.code_bits) - 1 for code, fmt in zip(given.values(), fmts, strict=True)]
        left, right = (decode(code, fmt).astype(object) for code, fmt in zip(codes, fmts, strict=True))
        products = unpack(data.ArrayLayout(signed(product_bits(fmts)), COPIES), got[f"o{k}"])
        assert_equal(" x ".join(fmt.element for fmt in fmts), products, left * right, w=codes[0], x=codes[1])
