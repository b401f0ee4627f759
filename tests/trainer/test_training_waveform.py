"""The part of a program of which a waveform is written: up to the first wrong word."""

from types import SimpleNamespace

import numpy as np
import pytest
from concord.verification import trainers

WORDS = 40
EACH = 4  #: Words that the machine writes in each chunk of cycles.


class Written:
    """A machine that writes one word behind the other."""

    made: list = []

    def __init__(self, kind, config, server, cores, trace=None, trace_from=0):
        self.server, self.cycles, self.trace, self.trace_from, self.first = server, 30, trace, trace_from, 30
        self.made.append(self)

    def load(self, program):
        self.program = program

    def start(self, first, second):
        assert (self.program, first, second) == ([1, 2], 5, 6)

    def go_on(self, most):
        begin = (self.cycles - self.first) // most * EACH
        self.server[begin : begin + EACH] = 7
        self.cycles += most
        return begin + EACH >= WORDS

    def close(self):
        """Nothing is held."""


@pytest.mark.parametrize(("wrong", "chunks"), [([30, 21, 25], 6), ([0], 1), ([], WORDS // EACH)])
def test_a_waveform_ends_where_the_first_wrong_word_is_written(wrong, chunks, monkeypatch, tmp_path):
    monkeypatch.setattr(trainers, "trainer_machine", Written)
    monkeypatch.setattr(Written, "made", [])
    session = SimpleNamespace(config=None, cores=1, copies=(5, 6), write_rates=lambda machine: None)
    found = SimpleNamespace(session=session, program=[1, 2], programs=[[1, 2]],
                            memory=np.zeros((WORDS, 16), np.uint8), wrong=np.array(wrong, np.int64))
    path = tmp_path / "waves" / "one.vcd"
    assert trainers.waveform(found, path) == chunks * trainers.CHUNK
    plain, traced = Written.made
    assert plain.trace is None
    assert (traced.trace, traced.cycles) == (path, 30 + chunks * trainers.CHUNK)
    assert traced.trace_from == max(traced.cycles - trainers.BEFORE, 0)
    assert path.parent.is_dir()
