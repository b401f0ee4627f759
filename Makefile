# `make verify` runs the shipped networks on the simulated machine, `make test` the tests. Both need python3 with venv, make,
# g++ and perl; everything else comes from PyPI into .venv.

PYTHON ?= python3

.PHONY: verify test
verify: .venv/run
	.venv/bin/nox -s verify

test: .venv/test
	.venv/bin/nox

.venv/run: pyproject.toml requirements.lock
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet pip==26.3
	.venv/bin/pip install --quiet --constraint requirements.lock --editable '.[sim,synthesis]' --group run
	touch $@

.venv/test: .venv/run
	.venv/bin/pip install --quiet --constraint requirements.lock --group test --group lint --group prove --group train --group logs --group export --group dashboard
	touch $@
