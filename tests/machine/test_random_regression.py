"""A thousand random programs on the Verilated machine."""

from types import SimpleNamespace

import pytest
from concord.campaigns import random_regression as module
from concord.campaigns.random_regression import Totals, chunk, run_programs
from concord.sim.units import CONFIGURATIONS
from concord.spec.machine.machine_file import find_config


class Idle:
    """A machine that does nothing."""

    link = SimpleNamespace(cycles=0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.mark.parametrize("error", [OverflowError("int too large"), IndexError("no such word"), ValueError("no shape")])
def test_a_program_on_which_golden_breaks_is_a_failure(monkeypatch, error):
    def broken(*_, **__):
        raise error

    monkeypatch.setattr(module, "compare", broken)
    monkeypatch.setattr(module, "machine", lambda *_, **__: Idle())
    monkeypatch.setattr(module, "shrink", lambda one, _: one)
    (failure,) = Totals.of(chunk("tiny", find_config("tiny"), 1, [3])).failures
    assert failure.program == 3
    assert failure.sentence == f"{type(error).__name__}: {error}"
    assert failure.text


def test_random_programs():
    """Results, final memories, events and errors equal golden's, and every bin is hit."""
    found = run_programs(CONFIGURATIONS, 1000, processes=2)
    print(*(f"{config} {name}: {count}" for config, counts in found.bins.items()
            for name, count in sorted(counts.items())), sep="\n")
    assert not found.failures, "\n".join(map(str, found.failures))
    assert found.programs >= 1000
    assert not any(found.missed.values()), found.missed


def test_random_programs_of_a_machine_of_floats_whose_stages_have_three_registers(tmp_path):
    path = tmp_path / "shallow.toml"
    path.write_text('based_on = "tiny_float"\nmfu_registers = 3\n')
    found = run_programs((str(path),), 80)
    assert not found.failures, "\n".join(map(str, found.failures))
    assert found.programs == 80


def test_random_programs_of_a_machine_of_three_engines_and_several_running_sums(tmp_path):
    path = tmp_path / "three.toml"
    path.write_text('based_on = "tiny"\ntile_engines = 3\nlanes = 2\nmatrix_tiles = 99\nvector_rf = 0\n'
                    'partial_sums = 3\noperand_columns = 12\n')
    found = run_programs((str(path),), 30)
    assert not found.failures, "\n".join(map(str, found.failures))
    assert found.programs == 30
