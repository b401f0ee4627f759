"""A dashboard in this process, with a client that has its session."""

from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("starlette", reason="extra dashboard")

from concord.dashboard.app import application
from concord.dashboard.settings import Settings
from starlette.testclient import TestClient

TOKEN = "a-token-of-the-tests"
BASE = "http://127.0.0.1:8420"


@pytest.fixture
def settings(tmp_path) -> Settings:
    named = tmp_path / "named"
    named.mkdir()
    return Settings(runs=tmp_path / "runs", token=TOKEN, roots=(named,), workers=2, upload=2**20)


@pytest.fixture
def stranger(settings):
    """A client that has no session."""
    app = application(settings, ThreadPoolExecutor(2))
    with TestClient(app, base_url=BASE, headers={"origin": BASE, "accept": "text/html"}) as client:
        yield client


@pytest.fixture
def client(stranger):
    """A client with a session."""
    stranger.get("/", params={"token": TOKEN})
    return stranger
