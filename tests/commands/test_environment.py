"""`nnp doctor` tells whether packages meet their requirements."""

import pytest
from concord.nnp.lib import environment


@pytest.mark.parametrize(("requirement", "good"), [
    ("numpy>=1,<99", True), ("numpy<1", False), ("numpy==0.1; python_version > '3'", False),
    ("no-such-package", False)])
def test_requirements_of_any_form(requirement, good, monkeypatch):
    monkeypatch.setattr(environment, "requires", lambda _: [requirement])
    _, finding = environment._packages()
    assert finding.good == good
    assert finding.what in ("numpy", "no-such-package")


def test_packages_of_extras_are_not_needed(monkeypatch):
    monkeypatch.setattr(environment, "requires", lambda _: ['no-such-package==1; extra == "front"', "no-such==1"])
    _, extra, needed = environment._packages()
    assert not extra.good
    assert not extra.needed
    assert extra.purpose == "extra front: ONNX files (==1)"
    assert needed.needed
