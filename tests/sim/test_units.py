"""Every unit under Verilator, by its testbench. `nox -s regress` runs this test with more configurations and seeds."""

import pytest


def test_unit(job, record_property):
    """The testbench passes."""
    for name in ("unit", "config", "seed"):
        record_property(name, getattr(job, name))
    failure = None
    try:
        record_property("folder", str(job.run()))
    except (AssertionError, RuntimeError) as error:
        failure = f"{error}\nRepeat with: {job.command}"
    if failure:
        pytest.fail(failure, pytrace=False)
