"""Sessions of the work on this machine: `nox` checks style and runs the tests.

They run in the environment that nox itself is installed in, which the Makefile prepares. What follows `--` on nox's
command line goes to the session's program.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import nox
from nox.virtualenv import HAS_UV, UV

nox.options.default_venv_backend = "none"

OWN = "uv" if HAS_UV else "none"  #: What makes the environments of sessions that have one of their own.

#: Tests that build no hardware: numbers, instruction set, golden arithmetic, networks, data, rooms.
QUICK = ("tests/spec", "tests/lib/test_float16.py", "tests/mvm/test_elements.py", "tests/net", "tests/datasets",
         "tests/test_rooms.py")
#: All test images on the ResNet: half of the time of QUICK.
MEASURED = "tests/net/test_network.py::test_shipped_models_reach_what_they_record[fashion-resnet-w8]"
#: Tests that reach every package which is not PyTorch: of the command line, of files, of a unit under cocotb.
PACKAGES = (*QUICK, "tests/test_package.py", "tests/commands/test_environment.py", "tests/commands/test_integration.py",
            "tests/commands/test_shipped.py::test_one_sample_through_cocotb[fashion-mlp-w4a4]",
            "tests/frontends/test_images.py", "tests/frontends/test_quantized.py", "tests/frontends/test_vectors.py",
            "tests/mfu/test_pooling.py")
#: Slow ones of PACKAGES: others generate and build machines, too.
SLOW = ("tests/net/quantize/test_input_scales.py::test_the_machine_takes_them_as_hardware",
        "tests/commands/test_integration.py::test_verilator_has_no_warning_of_a_random_machine")
#: Programs that are sessions: the module below `concord` that runs, and what it does.
PROGRAMS = {
    "accelerator_lists": (
        "campaigns.accelerator_lists",
        "Random lists of commands for one to four cores, golden beside the gates; `--lists`, `--races`, `--refusals`."),
    "accelerator_streams": (
        "campaigns.accelerator_streams",
        "Inputs longer than NetQ through four cores, random stalls: all end, and no core rests; `--seeds`."),
    "nightly": (
        "campaigns.random_regression",
        "Random programs on the Verilated machine, as many as `--programs` asks for."),
    "cluster": (
        "campaigns.cluster",
        "Random programs on two workers of a Dask cluster, one killed in the middle: the same results; `--programs`."),
    "lint_machines": (
        "campaigns.lint_machines",
        "Verilator's warnings about the Verilog of every preset and of random machines; `--machines`, `--seed`."),
    "twin_programs": (
        "campaigns.twin_programs",
        "Random programs as twins in numpy, outputs and final memories against golden's; `--programs`."),
    "twin_random": (
        "campaigns.twin_random",
        "Twins of random networks of every kind on machines of every kind, beside golden; `--networks`, `--seed`."),
    "twin_faults": (
        "campaigns.twin_faults",
        "Faults in firmware and hardware, named beside the values of twin, golden and RTL."),
    "mutants": ("campaigns.mutants", "Break one line after another: the testbench of just that unit must go red."),
    "prove": (
        "campaigns.prove",
        "What must hold of every step of the lazy update, by a solver, and the bugs that it must find."),
    "assets": (
        "campaigns.assets",
        "Fetch uPlot of the dashboard, and axe-core of its tests, from npm again, at fixed versions, and check them."),
    "browser": (
        "campaigns.browser",
        "The dashboard in Debian's chromium, from a network and data to a verified model: build/browser; `--slowly`."),
    "traces": (
        "campaigns.traces",
        "Traces in Debian's chromium, and read back into SQLite: build/traces; `--long SPANS`."),
    "bench": ("benchmarks.bench", "How fast the machine and its simulations are."),
    "bench_block": (
        "benchmarks.bench_block",
        "Block floating point of 8 to 3 bits beside FP32, before and after training: accuracy; `--speed`."),
    "bench_formats": (
        "benchmarks.bench_formats",
        "Weights of mantissas, floats and powers of two: accuracy of the shipped MLP and ResNet; `--area`."),
    "bench_images": (
        "benchmarks.bench_images",
        "MLPerf Tiny's reference architectures and single convolutions: cycles, utilisation and waits of each layer."),
    "bench_imagenet": (
        "benchmarks.bench_imagenet",
        "ResNet-18 of 224 x 224 pixels from PyTorch to a machine: seconds, differing outputs; `--machine`."),
    "bench_lazy": (
        "benchmarks.bench_lazy",
        "Training with the lazy update beside FP32 and others: accuracy, bytes; `--speed`, `--exponents`."),
    "bench_attention": (
        "benchmarks.bench_attention",
        "Transformers from PyTorch to RTL: accuracy, differing bits, cycles; `--network`, `--no-rtl`."),
    "bench_attention_training": (
        "benchmarks.attention_training",
        "Transformers of 4 to 2 bits, without training and after QAT; `--network`, `--epochs`."),
    "bench_accelerator": (
        "benchmarks.bench_accelerator",
        "Several cores before one memory: images a second beside one core's; `--cores`, `--model`."),
    "bench_dram": (
        "benchmarks.bench_dram",
        "Memory outside the chip: bytes a cycle, overlap, networks; `--stream`, `--overlap`, `--model`, `--sdram`."),
    "bench_lstm": ("benchmarks.bench_lstm", "LSTMs of 8, 6, 5 and 4 bits a gate beside FP32: accuracy."),
    "bench_machines": (
        "benchmarks.bench_machines",
        "Throughput of several machines in a pipeline beside one, `--tiny` for MLPerf Tiny's architectures."),
    "bench_overflow": (
        "benchmarks.bench_overflow",
        "Image and recurrent networks on accumulators of 16, 14 and 12 bits beside FP32: accuracy, events; `--share`."),
    "bench_scales": (
        "benchmarks.bench_scales",
        "8 bits after a scaler beside onnxruntime's, channels of equal range at 8 to 4 bits: accuracy; `--seeds`."),
    "bench_tiny": (
        "benchmarks.bench_tiny",
        "The trained networks of MLPerf Tiny from their published files to RTL: `-- --models FOLDER --data FOLDER`."),
    "bench_dashboard": (
        "benchmarks.bench_dashboard",
        "CPU time of a training that two clients watch, beside the same without a page; `--pairs`, `--epochs`."),
    "bench_deepbench": (
        "benchmarks.bench_deepbench",
        "DeepBench's recurrent networks at batch 1 on large machines, beside Brainwave: cycles; `--network`."),
    "bench_timing": (
        "benchmarks.bench_timing",
        "How fast machines without numbers are built and run, up to 131,072 multipliers; `--machine`."),
    "bench_train": (
        "benchmarks.bench_train",
        "Ways to start quantisation-aware training beside each other; `--speed`."),
    "bench_trainer": (
        "benchmarks.bench_trainer",
        "Training on a trainer beside golden.lazy and PyTorch: hashes, cycles; `--model`, `--machine library`."),
    "figure11": (
        "benchmarks.figure11",
        "Three starts of QAT in seven settings, as the first source document's figure 11: writes docs/figure11.md."),
    "bench_twins": (
        "benchmarks.bench_twins",
        "Software twins in numpy and PyTorch beside golden, batches of 1 and 64."),
    "dashboard_bytes": (
        "campaigns.dashboard_bytes",
        "An MLP, a CNN, an LSTM and a GRU steered through the dashboard, beside the commands that it prints: bytes."),
    "dashboard_kills": (
        "campaigns.dashboard_kills",
        "The dashboard's server and workers killed at random moments: no run lost, equal bytes; `--kills`, `--seed`."),
    "dram_failures": (
        "campaigns.dram_failures",
        "Random programs with a wrong response of the memory outside the chip, and resets; `--responses`, `--resets`."),
    "dram_port": (
        "campaigns.dram_port",
        "The port of Dram: 100,000 bursts on each width of the bus, and ports that break a rule; `--transactions`."),
    "dram_programs": (
        "campaigns.dram_programs",
        "Random programs with memory outside the chip, golden beside the gates at three latencies; `--programs`."),
    "timing_programs": (
        "campaigns.timing_programs",
        "Random programs on machines, and on the same machines without their numbers: equal cycles; `--programs`."),
    "train_on_machine": (
        "benchmarks.train_on_machine",
        "A perceptron trained on a core that trains, then used on a core beside it; `--machine`, `--steps`."),
    "trainer_programs": (
        "campaigns.trainer_programs",
        "Random programs of a core that trains, golden beside the gates; `--programs`, `--damaged`, `--program`."),
    "twin_networks": (
        "campaigns.twin_networks",
        "Twins of every kind of network, in every framework, with hints and without, beside golden and the gates."),
    "verify_matrix": (
        "campaigns.verify_matrix",
        "Networks trained by every method and width that a machine takes, on its gates, bit for bit."),
    "fingerprint": (
        "campaigns.fingerprint",
        "Hashes of all that is computed, for `--against` those of another commit: no bit and no cycle has changed."),
    "synth": ("benchmarks.synth", "Gates, multipliers and memories of each unit on an ECP5; `--unit`, `--pack`."),
    "clocks": (
        "benchmarks.clocks",
        "The clock of each unit, placed and routed alone on an ECP5, beside the recorded one: `--unit`, `--record`."),
    "mapping": (
        "benchmarks.mapping",
        "Cells of a machine by several ways to map it to an ECP5, after packing: `--preset`, `--way`."),
    "machine_clocks": (
        "benchmarks.machine_clocks",
        "Cells and clock of whole machines, placed and routed for a board: `--preset`, `--seeds`, `--record`."),
    "sweep": (
        "benchmarks.sweep",
        "Cells of machines of many shapes after packing, clocks of some of them, and a picture: `-n`, `--record`."),
    "netlist": (
        "campaigns.netlist_runs",
        "Shipped networks and random programs on netlists after synthesis, bit for bit; `--programs`, `--mutate`."),
    "serial": (
        "campaigns.serial_lines",
        "Messages over serial lines with faults, to machines in gates: `--messages`, `--preset`, `--clock`, `--rate`."),
    "synth_lazy": (
        "benchmarks.lazy_area",
        "Gates and clock of the lazy update at 1, 4 and 16 lanes on an ECP5, placed and routed."),
    "sources": (
        "campaigns.sources",
        "Commands that show what the source documents ask for: writes docs/sources.md; `--only 3.` runs some of them."),
    "zoo": (
        "campaigns.zoo.zoo",
        "ONNX files as PyTorch, scikit-learn, Keras and Brevitas write them: imported, or refused by name."),
    "exports": (
        "campaigns.exports",
        "Networks of many kinds as PyTorch exports them, quantised and held to the bit: `--only lstm` runs some."),
    "node_cases": (
        "campaigns.node_cases",
        "ONNX's own models of single nodes: imported and equal to onnxruntime, or refused in a sentence."),
    "fuzz": (
        "campaigns.fuzz",
        "Damaged files of every kind that users bring: refused in a sentence that names the file."),
    "fuzz_guided": (
        "campaigns.fuzz.guided",
        "Files of one kind that reach other lines of its loader, by atheris: `-- --kind npz -max_total_time=60`."),
}
#: Packages of these programs that `make` does not install, with their groups.
NEEDED = {"browser": {"playwright": "browser"}, "fuzz_guided": {"atheris": "fuzz"}}


def python(session, *words, **env):
    """Run a module with this environment's Python, its programs on the path, and environment variables."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    session.run(sys.executable, "-m", *words, *session.posargs, external=True, env={"PATH": path, **env})


def need(session, there, package, group):
    """End the session in a sentence where a package of a group is not there."""
    if not there:
        install = f".venv/bin/pip install --constraint requirements.lock --group {group}"
        session.error(f"this session needs {package}: {install}")


@nox.session
def lint(session):
    """Style and types."""
    session.run(sys.executable, "-m", "ruff", "check", external=True)
    session.run(sys.executable, "-m", "ty", "check", "--error-on-warning", "--python", sys.prefix,
                external=True)


@nox.session
def tests(session):
    """Everything that must pass: `nox -s tests -- -k quantizer` runs some."""
    # Each core has a process of its own; a second thread of PyTorch would only wait for it. Neighbouring tests, which
    # often need the same build, stay in one process.
    python(session, "pytest", "-n", "2", "--dist", "worksteal", "--durations", "25", "--durations-min", "5",
           OMP_NUM_THREADS="1")


@nox.session(default=False)
def quick(session):
    """The tests of a minute: numbers, instruction set, golden arithmetic, networks, data, rooms; no builds."""
    python(session, "pytest", "-n", "2", *QUICK, f"--deselect={MEASURED}", OMP_NUM_THREADS="1")


@nox.session(default=False, venv_backend=OWN, reuse_venv=True)
@nox.parametrize("resolution", ["lowest-direct", "highest"])
def dependencies(session, resolution):
    """Tests on the lowest and the newest packages that pyproject.toml allows; PyTorch stays out."""
    need(session, HAS_UV, "uv", "lock")
    session.install("--resolution", resolution, "--editable", ".[front,sim,synthesis]")
    session.install("pytest", "hypothesis", "gfloat")  # the newest ones, which leave what is installed as it is
    session.run("python", "-m", "pytest", *PACKAGES, *(f"--deselect={name}" for name in SLOW), *session.posargs,
                env={"OMP_NUM_THREADS": "1"})


@nox.session(default=False, venv_backend=OWN, reuse_venv=True)
def tensorflow(session):
    """The tests of twins in TensorFlow, in an environment of its own."""
    need(session, HAS_UV, "uv", "lock")
    session.install("--editable", ".[sim]", "pytest", "hypothesis", "torch", "--group", "tensorflow")
    session.run("python", "-m", "pytest", "tests/twin", "-k", "tensorflow", *session.posargs,
                env={"TF_CPP_MIN_LOG_LEVEL": "3"})


@nox.session(default=False)
def lock(session):
    """Write requirements.lock: the versions that `make` and CI install; `-- --upgrade` takes the newest ones."""
    need(session, HAS_UV, "uv", "lock")
    groups = nox.project.load_toml("pyproject.toml")["dependency-groups"]
    session.run(UV, "pip", "compile", "pyproject.toml", "--all-extras", *(f"--group={name}" for name in groups),
                "--universal", "--python-version", "3.11", "--no-annotate", "--custom-compile-command", "nox -s lock",
                "--output-file", "requirements.lock", "--quiet", *session.posargs, external=True)


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
def docs(session):
    """Write the generated pages of the documentation."""
    session.run(sys.executable, "docs/generate.py", *session.posargs, external=True)


def program(name, module, text):
    """Add a session that runs a module."""
    def run(session):
        for package, group in NEEDED.get(name, {}).items():
            need(session, find_spec(package), package, group)
        python(session, f"concord.{module}")

    run.__doc__ = text
    nox.session(run, name=name, default=False)


for _name, (_module, _text) in PROGRAMS.items():
    program(_name, _module, _text)
