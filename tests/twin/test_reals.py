"""Which products may be computed in float32."""

import numpy as np
from concord.tests.twin.scripts import SCRIPTS, call, routine
from concord.twin.lib.run import arrays
from concord.twin.lib.script import Script, StoredTensor

CODES = call("x", "integers", "x", lowest=-128, highest=127)


def types(weights, *body):
    """Types of the stored weights and start values of a script of some lines."""
    main = routine("main", "Test", "x", "y", *body)
    tensors = {"d.weights": StoredTensor(values=weights), "d.start": StoredTensor(values=np.array([1 << 20])),
               "d.codes": StoredTensor(values=np.float32([1000, 3])),
               "d.index": StoredTensor(values=np.int32([0, 70000]))}
    script = Script(name="t", machine="tiny", inputs=(2,), outputs=1, classes=(), main=main, routines=(),
                    tensors=tensors)
    return {name.partition(".")[2]: values.dtype for name, values in arrays(script).items()}


def test_sums_that_reach_the_limit_need_float64():
    most = (1 << 24) - (1 << 20)  # the start value takes 2**20
    for weight, real in ((most // 128 - 1, np.float32), (most // 128, np.float64)):
        found = types(np.array([[-weight, 0]]), CODES, call("y", "dense", "x", "d.weights", "d.start"))
        assert found["weights"] == found["start"] == real


def test_codes_of_block_floating_point_need_float64():
    found = types(np.array([[1, 2]]), call("x", "blocks", "x", size=2, bits=4), call("y", "dense", "x", "d.weights"))
    assert found["weights"] == np.float64


def test_stored_codes_count():
    weights = np.array([[0, 0, 0, 20000]])
    codes = call("c", "start", "x", "d.codes")
    for first, real in (("x", np.float32), ("c", np.float64)):
        found = types(weights, codes, CODES, call("x", "join", first, "x"), call("y", "dense", "x", "d.weights"))
        assert found["weights"] == real


def test_an_index_is_no_code():
    found = types(np.array([[1000, 0]]), CODES, call("x", "take", "d.index", "x"), call("y", "dense", "x", "d.weights"))
    assert found["weights"] == np.float32
    assert found["index"] == np.int32


def test_small_networks_are_float32():
    for name in ("sounds", "pictures"):
        assert not any(values.dtype == np.float64 for values in arrays(SCRIPTS[name]).values())
    assert arrays(SCRIPTS["digits"])["hidden1.weights"].dtype == np.float64
