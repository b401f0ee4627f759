"""Runs the server, until Ctrl-C."""

import resource
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvicorn
from concord.dashboard.app import application
from concord.dashboard.settings import Settings

#: Most connections that are answered at once; others are told to come again.
CONNECTIONS = 4000


def serve(settings: Settings, listener: socket.socket):
    """Serve pages at a socket.

    Args:
        settings: Settings of the server.
        listener: Socket that listens.
    """
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # idle connections take one each
    app = application(settings, ThreadPoolExecutor(settings.workers))
    tls: dict[str, Any] = (
        {}
        if settings.certificate is None
        else dict(zip(("ssl_certfile", "ssl_keyfile"), map(str, settings.certificate), strict=True))
    )
    config = uvicorn.Config(
        app, log_level="warning", limit_concurrency=CONNECTIONS, timeout_keep_alive=15, timeout_graceful_shutdown=1,
        server_header=False, ws="none", **tls)
    uvicorn.Server(config).run(sockets=[listener])
