"""Sessions of the work on this machine: `nox` checks style and runs the tests.

They run in the environment that nox itself is installed in, which the Makefile prepares. What follows `--` on nox's
command line goes to the session's program.
"""

import os
import sys
from pathlib import Path

import nox

nox.options.default_venv_backend = "none"

#: Tests that build no hardware: numbers, instruction set, golden arithmetic, networks, data, rooms.
QUICK = ("tests/spec", "tests/lib/test_float16.py", "tests/mvm/test_elements.py", "tests/net", "tests/datasets",
         "tests/test_rooms.py")
#: Tests that reach every package which is not PyTorch: of the command line, of files, of a unit under cocotb.
PACKAGES = (*QUICK, "tests/test_package.py", "tests/commands/test_environment.py", "tests/commands/test_shipped.py",
            "tests/commands/test_integration.py", "tests/frontends/test_zoo.py", "tests/mfu/test_pooling.py")


def python(session, *words, **env):
    """Run a module with this environment's Python, its programs on the path, and environment variables."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    session.run(sys.executable, "-m", *words, *session.posargs, external=True, env={"PATH": path, **env})


@nox.session
def lint(session):
    """Style and types."""
    session.run(sys.executable, "-m", "ruff", "check", external=True)
    session.run(sys.executable, "-m", "ty", "check", "--error-on-warning", "--python", sys.prefix,
                external=True)


@nox.session
def tests(session):
    """Everything that must pass: `nox -s tests -- -k quantizer` runs some."""
    # Each core has a process of its own; a second thread of PyTorch would only wait for it.
    python(session, "pytest", "-n", "2", OMP_NUM_THREADS="1")


@nox.session(default=False)
def quick(session):
    """The tests of a minute: numbers, instruction set, golden arithmetic, networks, data, rooms; no builds."""
    python(session, "pytest", "-n", "2", *QUICK, OMP_NUM_THREADS="1")


@nox.session(default=False, venv_backend="uv", reuse_venv=True)
@nox.parametrize("resolution", ["lowest-direct", "highest"])
def dependencies(session, resolution):
    """Tests on the lowest and the newest packages that pyproject.toml allows; PyTorch stays out."""
    session.install("--resolution", resolution, "--editable", ".[front,sim,synthesis]", "pytest", "hypothesis")
    session.run("python", "-m", "pytest", *PACKAGES, *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session(default=False)
def lock(session):
    """Write requirements.lock: the versions that `make` and CI install; `-- --upgrade` takes the newest ones."""
    groups = nox.project.load_toml("pyproject.toml")["dependency-groups"]
    python(session, "uv", "pip", "compile", "pyproject.toml", "--all-extras", *(f"--group={name}" for name in groups),
           "--universal", "--python-version", "3.11", "--no-annotate", "--custom-compile-command", "nox -s lock",
           "--output-file", "requirements.lock", "--quiet")


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
    python(session, "concord.campaigns.random_regression")


@nox.session(default=False)
def lint_machines(session):
    """Verilator's warnings about the Verilog of every preset and of random machines; `--machines`, `--seed`."""
    python(session, "concord.campaigns.lint_machines")


@nox.session(default=False)
def twin_programs(session):
    """Random programs as twins in numpy, outputs and final memories against golden's; `--programs`."""
    python(session, "concord.campaigns.twin_programs")


@nox.session(default=False)
def twin_random(session):
    """Twins of random networks of every kind on machines of every kind, beside golden; `--networks`, `--seed`."""
    python(session, "concord.tests.twin.campaign")


@nox.session(default=False)
def twin_faults(session):
    """Faults in firmware and hardware, named beside the values of twin, golden and RTL."""
    python(session, "concord.campaigns.twin_faults")


@nox.session(default=False)
def mutants(session):
    """Break one line after another: the testbench of just that unit must go red."""
    python(session, "concord.campaigns.mutants")


@nox.session(default=False)
def prove(session):
    """What must hold of every step of the lazy update, by a solver, and the bugs that it must find."""
    python(session, "concord.campaigns.prove")


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
    """Throughput of several machines in a pipeline beside one, `--tiny` for MLPerf Tiny's architectures."""
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
    python(session, "concord.campaigns.twin_networks")


@nox.session(default=False)
def verify_matrix(session):
    """Networks trained by every method and width that a machine takes, on its gates, bit for bit."""
    python(session, "concord.campaigns.verify_matrix")


@nox.session(default=False)
def fingerprint(session):
    """Hashes of all that is computed, for `--against` those of another commit: no bit and no cycle has changed."""
    python(session, "concord.campaigns.fingerprint")


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
    python(session, "concord.tests.frontends.zoo")


@nox.session(default=False)
def node_cases(session):
    """ONNX's own models of single nodes: imported and equal to onnxruntime, or refused in a sentence."""
    python(session, "concord.campaigns.node_cases")


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
