"""What an operator decides when the dashboard starts: where it listens, who gets in, and which folders it reads."""

import os
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

#: Addresses that only this computer reaches.
LOCAL = ("127.0.0.1", "::1", "localhost")
#: Fewest signs of a token that an operator gives.
SHORTEST = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Settings of one server.

    Attributes:
        runs:        Folder of all runs.
        token:       Secret that the URL holds.
        host:        Address to listen on.
        port:        TCP port to listen on.
        names:       Further names under which browsers reach the server, beside `host` and those of this computer.
        roots:       Folders below which users may name files.
        workers:     Number of processes that run at once.
        scheduler:   Address of the scheduler of a cluster that verifies; empty for this computer.
        upload:      Most bytes of one request.
        certificate: PEM files of the certificate and its key, for TLS; None for plain HTTP.

    Raises:
        ValueError: a sentence about what is missing.
    """

    runs: Path
    token: str
    host: str = "127.0.0.1"
    port: int = 8420
    names: tuple[str, ...] = ()
    roots: tuple[Path, ...] = ()
    workers: int = os.cpu_count() or 1
    scheduler: str = ""
    upload: int = 512 * 2**20
    certificate: tuple[Path, Path] | None = None

    def __post_init__(self):
        if len(self.token) < SHORTEST or not self.token.isascii() or not self.token.isprintable() or " " in self.token:
            raise ValueError(f"the token has {len(self.token)} signs: {SHORTEST} or more letters and digits are needed")
        for root in self.roots:
            if not root.is_dir():
                raise ValueError(f"--root {root}: there is no such folder")
        for path in self.certificate or ():
            if not path.is_file():
                raise ValueError(f"{path}: there is no such file; --certificate and --key are PEM files")

    @property
    def scheme(self) -> str:
        """http, or https where there is a certificate."""
        return "https" if self.certificate else "http"

    @property
    def hosts(self) -> frozenset[str]:
        """Values of the header `Host` that are answered."""
        names = {*LOCAL, "[::1]", self.host, *self.names, socket.gethostname()}
        usual = self.port == {"http": 80, "https": 443}[self.scheme]
        return frozenset(name.lower() if usual else f"{name.lower()}:{self.port}" for name in names)

    @property
    def url(self) -> str:
        """The address to open, with the token."""
        usual = socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host
        name = self.names[0] if self.names else f"[{usual}]" if ":" in usual else usual
        return f"{self.scheme}://{name}:{self.port}/?token={self.token}"


def token_of(runs: Path, file: Path | None, host: str, certificate: bool) -> str:
    """The token: that of a file, or the one that was made when these runs began, so that a restart keeps sessions.

    Args:
        runs:        Folder of all runs.
        file:        File that holds the user's token, or None.
        host:        Address to listen on.
        certificate: Whether there is a certificate.

    Raises:
        ValueError: other computers can reach the server, and neither a token nor a certificate is given.
    """
    if file is not None:
        try:
            return file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = "it is no text" if isinstance(error, UnicodeDecodeError) else error.strerror
            raise ValueError(f"--token-file {file}: {reason}; name a file that holds the token") from error
    if host not in LOCAL and not certificate:
        raise ValueError(f"--host {host}: other computers can reach it there, so name a file with a token of your own "
                         "(--token-file), or TLS files (--certificate and --key)")
    kept = runs / ".token"
    if not kept.is_file():
        runs.mkdir(parents=True, exist_ok=True)
        with open(os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as made:
            made.write(secrets.token_urlsafe(24))
    return kept.read_text().strip()


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens at an address.

    Raises:
        ValueError: the port is taken, or the address is none of this computer.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(128)
    except OSError as error:
        made.close()
        words = f"--host {host} --port {port}: {error.strerror or error}; --port 0 takes any free port"
        raise ValueError(words) from error
    return made
