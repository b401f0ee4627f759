"""Sessions of the work on this machine: `nox` checks style and runs the tests.

They run in the environment that nox itself is installed in, which the Makefile prepares. What follows `--` on nox's
command line goes to the session's program.
"""

import os
import sys
from pathlib import Path

import nox

nox.options.default_venv_backend = "none"


def python(session, *words):
    """Run a module with this environment's Python, its programs on the path."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    session.run(sys.executable, "-m", *words, *session.posargs, external=True, env={"PATH": path})


@nox.session
def lint(session):
    """Style."""
    session.run(sys.executable, "-m", "ruff", "check", external=True)


@nox.session
def tests(session):
    """Everything that must pass: `nox -s tests -- -k quantizer` runs some."""
    python(session, "pytest", "-n", "2")


@nox.session(default=False)
def verify(session):
    """The shipped networks on the simulated machine, bit for bit against the golden model."""
    session.run(str(Path(sys.executable).with_name("nnp")), "verify", *session.posargs, external=True)


@nox.session(default=False)
def regress(session):
    """Every unit's cocotb testbench by pytest: tables of runs, line coverage and bins, and JUnit XML."""
    report = ("--regress", "--junitxml", "build/regress/junit.xml")
    python(session, "pytest", "tests/sim/test_units.py::test_unit", *report)


@nox.session(default=False)
def nightly(session):
    """Random programs on the Verilated machine, as many as `--programs` asks for."""
    python(session, "concord.sim.campaigns.random_regression")


@nox.session(default=False)
def twin_programs(session):
    """Random programs as twins in numpy, outputs and final memories against golden's; `--programs`."""
    python(session, "concord.benchmarks.twin_programs")


@nox.session(default=False)
def twin_random(session):
    """Twins of random networks of every kind on machines of every kind, beside golden; `--networks`, `--seed`."""
    python(session, "concord.tests.twin.campaign")


@nox.session(default=False)
def twin_faults(session):
    """Faults in firmware and hardware, named beside the values of twin, golden and RTL."""
    python(session, "concord.benchmarks.twin_faults")


@nox.session(default=False)
def mutants(session):
    """Break one line after another: the testbench of just that unit must go red."""
    python(session, "concord.sim.campaigns.mutants")


@nox.session(default=False)
def prove(session):
    """What must hold of every step of the lazy update, by a solver, and the bugs that it must find."""
    python(session, "concord.sim.campaigns.prove")


@nox.session(default=False)
def bench(session):
    """How fast the machine and its simulations are."""
    python(session, "concord.benchmarks.bench")


@nox.session(default=False)
def bench_block(session):
    """Block floating point of 8 to 3 bits beside FP32, before and after training: accuracy; `--speed`."""
    python(session, "concord.benchmarks.bench_block")


@nox.session(default=False)
def bench_formats(session):
    """Weights of mantissas, floats and powers of two: accuracy of the shipped MLP and ResNet; `--area`."""
    python(session, "concord.benchmarks.bench_formats")


@nox.session(default=False)
def bench_images(session):
    """MLPerf Tiny's reference architectures and single convolutions: cycles, utilisation and waits of each layer."""
    python(session, "concord.benchmarks.bench_images")


@nox.session(default=False)
def bench_lazy(session):
    """Training with the lazy update beside FP32 and others: accuracy, bytes, `--speed`."""
    python(session, "concord.benchmarks.bench_lazy")


@nox.session(default=False)
def bench_lstm(session):
    """LSTMs of 8, 6, 5 and 4 bits a gate beside FP32: accuracy."""
    python(session, "concord.benchmarks.bench_lstm")


@nox.session(default=False)
def bench_machines(session):
    """Throughput of several machines in a row beside one, `--tiny` for MLPerf Tiny's architectures."""
    python(session, "concord.benchmarks.bench_machines")


@nox.session(default=False)
def bench_overflow(session):
    """ResNet-style networks and MLPs on accumulators of 16, 14 and 12 bits beside FP32: accuracy, overflow events."""
    python(session, "concord.benchmarks.bench_overflow")


@nox.session(default=False)
def bench_tiny(session):
    """The trained networks of MLPerf Tiny from their published files to RTL: `-- --models FOLDER --data FOLDER`."""
    python(session, "concord.benchmarks.bench_tiny")


@nox.session(default=False)
def bench_train(session):
    """Ways to start quantisation-aware training beside each other; `--speed`."""
    python(session, "concord.benchmarks.bench_train")


@nox.session(default=False)
def bench_twins(session):
    """Software twins in numpy and PyTorch beside golden, batches of 1 and 64."""
    python(session, "concord.benchmarks.bench_twins")


@nox.session(default=False)
def twin_networks(session):
    """Twins of every kind of network, in every framework, with hints and without, beside golden and the gates."""
    python(session, "concord.benchmarks.twin_networks")


@nox.session(default=False)
def verify_matrix(session):
    """Networks trained by every method and width that a machine takes, on its gates, bit for bit."""
    python(session, "concord.benchmarks.verify_matrix")


@nox.session(default=False)
def fingerprint(session):
    """Hashes of all that is computed, for `--against` those of another commit: no bit and no cycle has changed."""
    python(session, "concord.benchmarks.fingerprint")


@nox.session(default=False)
def synth(session):
    """Gates, multipliers and memories of each unit on an ECP5."""
    python(session, "concord.benchmarks.synth")


@nox.session(default=False)
def synth_lazy(session):
    """Gates and clock of the lazy update at 1, 4 and 16 lanes on an ECP5, placed and routed."""
    python(session, "concord.benchmarks.lazy_area")


@nox.session(default=False)
def zoo(session):
    """ONNX files as PyTorch, scikit-learn, Keras and Brevitas write them: imported, or refused by name."""
    python(session, "concord.tests.front.zoo")


@nox.session(default=False)
def docs(session):
    """Write the generated pages of the documentation."""
    session.run(sys.executable, "docs/generate.py", *session.posargs, external=True)


@nox.session(default=False)
def fuzz(session):
    """Damaged files of every kind that users bring: refused in a sentence that names the file."""
    python(session, "concord.tests.fuzz")


@nox.session(default=False)
def fuzz_guided(session):
    """Files of one kind that reach other lines of its loader, by atheris: `-- --kind npz -max_total_time=60`."""
    python(session, "concord.tests.fuzz.guided")
