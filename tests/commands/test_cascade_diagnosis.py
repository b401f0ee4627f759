"""The first difference on several machines: the machine, and the chain, instruction and element on it."""

import re
from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ImageNetworkMaker
from concord.compiler.cascade import PartCompiler
from concord.firmware.cascade import Cascade
from concord.firmware.firmware_file import save_cascade
from concord.net.model import Model
from concord.spec.machine.config import preset
from concord.tests.command_line import done, nnp
from concord.verification import batches, diagnosis
from concord.verification.diagnosis import first_difference_of

TINY = preset("tiny")


def wrong(cascade: Cascade, number: int, tile: int, row: int) -> Cascade:
    """The same firmware with one bit of one weight of a machine changed."""
    part = cascade.parts[number]
    mantissas = part.tiles.mantissas.copy()
    mantissas[tile, row, 0] ^= 32
    changed = replace(part, tiles=replace(part.tiles, mantissas=mantissas))
    return replace(cascade, parts=(*cascade.parts[:number], changed, *cascade.parts[number + 1:]))


def inline(function, jobs, _, begin, arguments, **_where):
    """`calls` without processes."""
    begin(*arguments)
    for job in list(jobs):
        yield job, function(*job)


@pytest.fixture
def model() -> Model:
    """Two LSTM layers and a dense one."""
    return networks.recurrent(np.random.default_rng(0), TINY, [3, 5, 4], block=[False, False], outputs=4)


@pytest.fixture
def recurrent(model) -> tuple[Cascade, np.ndarray]:
    """Each layer on a machine, and a sequence of six time steps."""
    sample = networks.inputs(np.random.default_rng(3), 6, 3)
    return PartCompiler(model, [TINY] * 3).compiled(["lstm0", "lstm1"]).cascade, sample


@pytest.mark.parametrize("reference", ["golden", "twin"])
def test_the_machine_with_a_changed_weight_is_found(recurrent, reference):
    cascade, sample = recurrent
    for number, layer in enumerate(["lstm0", "lstm1", "dense"]):
        found = first_difference_of(cascade, wrong(cascade, number, 0, 1), "golden", sample, 17, reference=reference)
        assert (found.machine, found.layer) == (number + 1, layer)
        assert str(found).startswith(f"machine {number + 1}, sample 17")
        assert len(set(found.values.values())) == 2


def test_equal_machines_differ_in_nothing(recurrent):
    cascade, sample = recurrent
    assert first_difference_of(cascade, cascade, "golden", sample, 0) is None
    assert first_difference_of(cascade, cascade, "library", sample, 0, reference="twin") is None


def test_simulated_hardware_is_named_beside_golden_and_twin():
    """An image and its skip connection cross the cut; a weight of the second machine differs on the hardware."""
    made = ImageNetworkMaker(np.random.default_rng(3), TINY, (2, 3, 3), block=False)
    first = made.conv("", 4, (1, 1))
    second = made.conv(first, 4, (1, 1))
    third = made.conv(made.sum(first, second), 2, (2, 2))
    model = made.model()
    cascade = PartCompiler(model, [TINY] * 2).compiled([second]).cascade
    sample = networks.inputs(np.random.default_rng(5), 1, model.inputs)[0]
    found = first_difference_of(cascade, wrong(cascade, 1, 0, 1), "library", sample, 0)
    assert (found.machine, found.layer) == (2, third)
    golden, rtl, twin = (found.values[name] for name in ("golden", "RTL", "twin"))
    assert golden == twin != rtl
    assert "`v_wr" in str(found)


def test_commands_name_the_machine(model, tmp_path, monkeypatch):
    """`nnp run --twin` against firmware that is right, and `nnp verify` where the hardware differs."""
    cascade = PartCompiler(model, [TINY] * 2).compiled(["lstm1"]).cascade
    monkeypatch.chdir(tmp_path)
    save_cascade(cascade, tmp_path / "right")
    save_cascade(wrong(cascade, 1, 0, 1), tmp_path / "wrong")
    np.save("x.npy", networks.inputs(np.random.default_rng(1), 8, 4, 3).view(np.float16))
    assert "0 of 8 samples differ" in done("run", "right", "--twin", "right", "--inputs", "x.npy")
    result = nnp("run", "wrong", "--twin", "right", "--inputs", "x.npy", "-q")
    assert result.exit_code == 1
    assert re.search(r"machine 2, sample \d: the first difference is in chain 1 of layer dense", result.stderr)
    session_of = batches.session_of
    monkeypatch.setattr(batches, "calls", inline)
    monkeypatch.setattr(batches, "_sessions", {})
    monkeypatch.setattr(batches, "session_of", lambda firmware, kind, cores: session_of(
        firmware if kind == "golden" else wrong(firmware, 1, 0, 1), kind, cores))
    monkeypatch.setattr(diagnosis, "first_difference_of", lambda right, _, *where: first_difference_of(
        right, wrong(right, 1, 0, 1), *where))
    result = nnp("verify", "right", "--inputs", "x.npy", "--jobs", 1, "--report", tmp_path / "report")
    assert result.exit_code == 1
    assert re.search(r"right: machine 2, sample \d: the first difference is in chain 1 of layer dense", result.stderr)
    assert ", RTL 0x" in result.stderr
