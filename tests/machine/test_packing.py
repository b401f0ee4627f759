"""Estimates of what nextpnr packs, and of the clock, fitted to machines that were measured."""

import pytest
from concord.benchmarks import sweep
from concord.handover.place import CELLS
from concord.machines import packing
from concord.machines.estimate import estimate
from concord.machines.packing import Swept, errors, fit, read_swept, write_swept


@pytest.fixture
def rows():
    """Six machines whose cells and clocks follow the formulas of the estimates; one is not routed."""
    made = []
    for k, changes in enumerate(sweep.MACHINES[:6]):
        cells = round(5000 + 1.25 * estimate(Swept(preset=sweep.BASE, changes=changes).config)["LUT4"])
        made.append(Swept(preset=sweep.BASE, changes=changes, cells=dict.fromkeys(CELLS.values(), cells),
                          mhz=None if k == 3 else 1000 / (4 + 0.05 * cells**0.5)))
    return made


def test_machines_are_written_and_read(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "PATH", tmp_path / "swept.csv")
    assert read_swept() == []
    write_swept(rows)
    assert read_swept() == rows
    write_swept(rows[:2])
    assert read_swept() == rows[:2]


def test_formulas_are_found(rows):
    fitted = fit(rows)
    assert fitted.terms == pytest.approx([5000, 1.25], rel=1e-3)
    assert fitted.delays == pytest.approx([4, 0.05], rel=1e-9)
    for row in rows:
        assert fitted.comb(row.config) == pytest.approx(row.cells["COMB"], abs=51)  # hundreds


def test_a_machine_that_is_left_out_shows_the_error(rows):
    cells, clocks = errors(rows)
    assert (len(cells), len(clocks)) == (6, 5)
    assert max(map(abs, cells + clocks)) < 5e-3
    changed = Swept(preset=sweep.BASE, changes=rows[0].changes, cells=rows[0].cells, mhz=2 * rows[0].mhz)
    assert errors([changed, *rows[1:]])[1][0] == pytest.approx(-0.5, abs=5e-3)


def test_too_few_machines_are_a_sentence(rows):
    with pytest.raises(ValueError, match="from two routed machines at least, and 1 is there: let nox -s sweep take"):
        fit([rows[0], rows[3]])


def test_machines_of_the_sweep_can_be_made():
    assert len(set(sweep.MACHINES)) == len(sweep.MACHINES) >= 40
    assert len(sweep.ROUTED) == 8
    for changes in sweep.MACHINES:
        Swept(preset="ulx3s", changes=changes).config.require_hardware()


def test_a_table_and_a_picture(rows, tmp_path):
    assert sweep.table(rows[3:4]).row_count == 1, "of machines that were not routed, too"
    assert sweep.table(rows).row_count == 6
    sweep.picture(rows, fit(rows), tmp_path / "sweep.svg")
    drawn = (tmp_path / "sweep.svg").read_text().count('id="PathCollection_')
    assert drawn == 2 * 4, "three numbers of bits, and those of one that was not routed, each in the legend, too"
