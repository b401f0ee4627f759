"""Who should not get in is refused, and what users bring stays text."""

import io
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import zipfile

import pytest
from concord.dashboard.paths import below
from concord.dashboard.security import HEADERS
from concord.dashboard.settings import Settings, listening, token_of
from concord.tests.dashboard.conftest import BASE, TOKEN
from concord.tests.dashboard.folders import filled
from concord.tests.own_digits import written
from starlette.websockets import WebSocketDisconnect


def test_only_the_token_lets_in_and_its_session_stays(stranger):
    assert stranger.get("/").status_code == 403
    assert stranger.get("/static/dashboard.css").status_code == 403
    assert stranger.get("/", params={"token": TOKEN[:-1] + "x"}).status_code == 403
    assert stranger.get("/?token=").status_code == stranger.get("/?token").status_code == 403
    assert not stranger.cookies
    entered = stranger.get("/new", params={"token": TOKEN, "x": "1", "y": ""}, follow_redirects=False)
    assert (entered.status_code, entered.headers["location"]) == (303, "/new?x=1&y=")
    assert "HttpOnly" in entered.headers["set-cookie"]
    assert TOKEN not in entered.headers["set-cookie"]
    page = stranger.get("/")
    assert page.status_code == 200
    assert {name: page.headers[name] for name in HEADERS} == HEADERS
    elsewhere = stranger.get(f"{BASE}//other.example/", params={"token": TOKEN}, follow_redirects=False)
    assert elsewhere.headers["location"] == "/other.example/"


@pytest.mark.parametrize(
    "headers", [{"host": "evil.example"}, {"host": "127.0.0.1:1"}, {"host": "localhost:8420.evil.example"}])
def test_a_foreign_name_is_refused(client, headers):
    assert client.get("/", headers=headers).status_code == 421


@pytest.mark.parametrize(
    "headers", [{"origin": "http://evil.example"}, {"origin": "null"}, {"origin": "http://127.0.0.1:8421"}])
def test_a_foreign_page_is_refused(client, headers):
    assert client.get("/", headers=headers).status_code == 403
    assert client.post("/new", headers=headers).status_code == 403


def test_a_request_without_origin_changes_nothing(client):
    del client.headers["origin"]
    assert client.post("/new").status_code == 403
    assert client.get("/new", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}).status_code == 403
    assert client.get("/new", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}).status_code == 200


def test_there_are_no_websockets(client):
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/runs/a/stream"):
        pass


def test_uploads_have_a_limit(client, settings):
    said = client.post("/new", headers={"content-length": str(10 * 2**30)})  # nothing of it is read
    assert said.status_code == 413
    assert "larger than 1 MB" in said.text

    def parts():  # without a length
        yield b'--b\r\nContent-Disposition: form-data; name="network"; filename="n.onnx"\r\n\r\n'
        for _ in range(40):
            yield b"x" * 2**16

    said = client.post("/new", content=parts(), headers={"content-type": "multipart/form-data; boundary=b"})
    assert said.status_code == 413
    assert not list(settings.runs.glob("*/inputs/*"))


def test_a_zip_bomb_and_other_files_are_refused_in_a_sentence(client, settings, tmp_path):
    network, _ = written(tmp_path)
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        header = b"\x93NUMPY\x01\x00\x76\x00" + (
            b"{'descr': '|u1', 'fortran_order': False, 'shape': (200000000000, 64), }".ljust(0x75) + b"\n")
        archive.writestr("x_train.npy", header + bytes(2**26))
    with open(network, "rb") as file:
        said = client.post("/new", files={"network": ("n.safetensors", file), "data": ("d.npz", bomb.getvalue())})
    assert said.status_code == 400
    assert "data.npz" in said.text
    said = client.post("/new", files={"network": ("n.pt", b"x"), "data": ("d.npz", b"x")})
    assert "a file ending with .onnx or .safetensors is needed" in said.text
    assert not list(settings.runs.iterdir())


def test_paths_lead_only_below_the_folders_of_the_operator(settings, tmp_path):
    (root,) = settings.roots
    (root / "in.npz").touch()
    (tmp_path / "out.npz").touch()
    (root / "link.npz").symlink_to(tmp_path / "out.npz")
    assert below(settings.roots, "in.npz") == below(settings.roots, str(root / "in.npz")) == root.resolve() / "in.npz"
    for text in ("../out.npz", str(tmp_path / "out.npz"), "link.npz", "none", "a\0b", "x" * 5000):
        with pytest.raises(ValueError, match="no such file or folder below"):
            below(settings.roots, text)
    with pytest.raises(ValueError, match="--root"):
        below((), "in.npz")


def test_runs_and_downloads_have_no_other_paths(client, settings):
    filled(settings.runs / "a")
    (settings.runs / "secret").write_text("x")
    for path in (
        "/runs/..%2f..", "/runs/secret", f"/runs/{'a' * 300}", f"/compare?run={'a' * 300}",
        "/runs/.", "/runs/a/files/..%2f..%2fsecret", "/runs/a/files/live.db",
        "/static/../app.py", "/static/%2e%2e/app.py"):
        assert client.get(path).status_code in (404, 405), path


def test_names_are_text(client, settings):
    bad = "<script>alert(1)</script>\x1b[31m"
    filled(settings.runs / "a", names=(bad,))
    run = settings.runs / "a" / "run.json"
    run.write_text(run.read_text().replace('"name": "a"', '"name": "<script>x</script>\\u001b[2J"'))
    for path in ("/", "/runs/a", "/compare?run=a"):
        text = client.get(path).text
        assert "<script>x" not in text
        assert "<script>alert" not in text
        assert "\x1b" not in text
        assert "&lt;script&gt;x" in text


def test_other_computers_are_let_in_only_with_a_token_of_ones_own_or_tls(tmp_path):
    with pytest.raises(ValueError, match="--host 0.0.0.0.*--token-file.*--certificate"):
        token_of(tmp_path, None, "0.0.0.0", certificate=False)
    own = tmp_path / "own"
    own.write_text("short\n")
    with pytest.raises(ValueError, match="16 or more"):
        Settings(runs=tmp_path, token=token_of(tmp_path, own, "0.0.0.0", certificate=False))
    made = token_of(tmp_path, None, "127.0.0.1", certificate=False)
    assert len(made) >= 32
    assert made == token_of(tmp_path, None, "0.0.0.0", certificate=True)
    assert (tmp_path / ".token").stat().st_mode & 0o77 == 0
    with listening("127.0.0.1", 0) as taken, pytest.raises(ValueError, match="--port 0"):
        listening("127.0.0.1", taken.getsockname()[1])


def test_a_thousand_connections_leave_the_server_alive(tmp_path):
    """The real server: it answers while a thousand connections are open, and ends at once by Ctrl-C."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    words = [sys.executable, "-m", "concord.nnp.main", "dashboard", "--port", "0", "--runs", str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        try:
            port = int(re.search(r":(\d+)/", server.stdout.readline())[1])
            opened = [socket.create_connection(("127.0.0.1", port)) for _ in range(1000)]
            for each in opened[:300]:
                each.sendall(b"GET / HTTP/1.1\r\n")  # and nothing more
            time.sleep(0.2)
            with socket.create_connection(("127.0.0.1", port), 10) as one:
                one.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
                assert one.recv(1000).startswith(b"HTTP/1.1 403")
            for each in opened:
                each.close()
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(10) in (0, -signal.SIGINT, 130)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
