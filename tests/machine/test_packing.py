"""Estimates of what nextpnr packs, and of the clock, fitted to machines that were measured."""

import pytest
from concord.benchmarks import sweep
from concord.machines import packing
from concord.machines.estimate import estimate
from concord.machines.packing import KINDS, Swept, clock, comb, errors, read_swept, write_swept


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """Six machines whose cells and clocks follow the formulas of the estimates exactly."""
    monkeypatch.setattr(packing, "PLACE", tmp_path / "swept.csv")
    made = []
    for k, changes in enumerate(sweep.MACHINES[:6]):
        row = Swept(preset="ulx3s", changes=changes)
        cells = round(5000 + 1.25 * estimate(row.config)["LUT4"])
        made.append(Swept(preset="ulx3s", changes=changes, cells=dict.fromkeys(KINDS, cells),
                          mhz=None if k == 3 else 1000 / (4 + 0.05 * cells ** 0.5)))
    write_swept(made)
    yield made
    packing._coefficients.cache_clear()


def test_machines_are_written_and_read(rows):
    assert read_swept() == rows


def test_formulas_are_found(rows):
    for row in rows:
        assert comb(row.config) == pytest.approx(row.cells["COMB"], abs=51)  # hundreds
        assert clock(row.config) == pytest.approx(1000 / (4 + 0.05 * row.cells["COMB"] ** 0.5), rel=2e-3)
    assert len(errors("COMB")) == 6
    assert len(errors("clock")) == 5
    assert max(map(abs, errors("COMB") + errors("clock"))) < 5e-3


def test_too_few_machines_are_a_sentence(rows):
    write_swept(rows[:1])
    with pytest.raises(ValueError, match="too few machines for an estimate: run nox -s sweep"):
        comb(rows[0].config)


def test_machines_of_the_sweep_can_be_made():
    assert len(set(sweep.MACHINES)) == len(sweep.MACHINES) >= 40
    assert len(sweep.ROUTED) == 8
    for changes in sweep.MACHINES:
        Swept(preset="ulx3s", changes=changes).config.require_hardware()


def test_a_picture(rows, tmp_path):
    sweep.picture(rows, tmp_path / "sweep.svg")
    assert (tmp_path / "sweep.svg").read_text().count("routed") >= 1
    assert sweep.table(rows).row_count == 6
