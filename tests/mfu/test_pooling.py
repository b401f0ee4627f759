"""golden.mfu.multifunction: the order of its maxima, and what one pixel keeps."""

import numpy as np
from concord.golden.lib.float16 import maximum
from concord.golden.mfu.multifunction import pool_max


def test_one_pixel_passes_as_it_is():
    bits = np.arange(1 << 16, dtype=np.uint16).reshape(-1, 1, 4)
    assert (pool_max(bits) == bits[:, 0]).all()


def test_windows_are_running_maxima():
    rng = np.random.default_rng(1)
    bits = rng.choice(np.array([0, 0x8000, 0x3C00, 0xBC00, 0x7C00, 0xFC00, 0x7E01, 0xFE00], np.uint16), (500, 5, 3),
                      p=(0.2, 0.2, 0.2, 0.15, 0.1, 0.1, 0.03, 0.02))
    want = bits[:, 0]
    for k in range(1, 5):
        want = maximum(want, bits[:, k])
    assert (pool_max(bits) == want).all()
    assert {0x7E00, 0x8000, 0x0000, 0xFC00} <= set(pool_max(bits[:, :2]).ravel().tolist())
