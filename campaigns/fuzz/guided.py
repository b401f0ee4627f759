"""Searches for files that make a loader fail by the lines of Python that each reaches, with atheris.

`nox -s fuzz_guided -- --kind npz -max_total_time=60` starts from whole and damaged files of a kind that is one file;
what follows the kind is for libFuzzer. `pip install atheris==3.0.0` comes first.
"""

import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import atheris

with atheris.instrument_imports(include=["concord"]):
    from concord.campaigns.fuzz.attempts import REFUSED, Attempts, verdict
    from concord.campaigns.fuzz.kinds import KINDS

#: Kinds that are one file each.
FILES = ("onnx-bytes", "imported", "model", "firmware", "npz", "npy", "csv", "data-toml", "machine-toml")
STARTS = 200  #: Damaged files to start from.


def main():
    """Search until the time ends; the first file that makes the loader fail ends the search with its traceback."""
    _, option, name, *options = [*sys.argv, "", ""]
    if option != "--kind" or name not in FILES:
        sys.exit(f"begin with --kind NAME, one of {', '.join(FILES)}")
    options = [word for word in options if word]
    warnings.simplefilter("error")
    with TemporaryDirectory() as folder:
        attempts, corpus = Attempts(name, Path(folder), 10, 2048), Path(folder) / "corpus"
        corpus.mkdir()
        for seed in range(STARTS):
            path = attempts.write(seed, "start")
            (corpus / str(seed)).write_bytes(path.read_bytes())
        path = Path(folder) / "next" / path.name
        path.parent.mkdir()

        def load(content: bytes):
            path.write_bytes(content)
            try:
                KINDS[name].load(path)
            except ValueError as error:
                if (found := verdict(str(error), path.parent)) != REFUSED:
                    raise RuntimeError(found) from error

        atheris.Setup([sys.argv[0], *options, str(corpus)], load)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
