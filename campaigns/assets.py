"""Fetches the JavaScript of other people from npm, at fixed versions, and checks it: `nox -s assets`.

The files lie in the repository, so that nothing else needs npm. A new version is a new line here.
"""

import base64
import hashlib
import io
import tarfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from concord.lib.files import write_all

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Asset:
    """Files of one package.

    Attributes:
        package: Name in npm.
        version: Its version.
        sha512:  Digest of its archive in base64, as npm has it.
        files:   Names that files get here, by their paths in the archive.
        folder:  Folder that they are written to.
    """

    package: str
    version: str
    sha512: str
    files: dict[str, str]
    folder: Path

    def fetched(self) -> dict[str, bytes]:
        """The bytes of each file, by its name here.

        Raises:
            ValueError: the archive has another digest.
        """
        url = f"https://registry.npmjs.org/{self.package}/-/{self.package}-{self.version}.tgz"
        with urllib.request.urlopen(url, timeout=60) as answer:
            content = answer.read()
        if base64.b64encode(hashlib.sha512(content).digest()).decode() != self.sha512:
            raise ValueError(f"{url}: its SHA-512 is another one than that of version {self.version}")
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            members = {name: archive.extractfile(f"package/{path}") for path, name in self.files.items()}
            return {name: member.read() for name, member in members.items() if member}


ASSETS = (
    Asset(
        package="uplot", version="1.6.32", folder=ROOT / "dashboard" / "static" / "vendor",
        sha512="KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
        files={"dist/uPlot.iife.min.js": "uPlot.iife.min.js", "dist/uPlot.min.css": "uPlot.min.css",
               "LICENSE": "uPlot.LICENSE"}),
    Asset(
        package="axe-core", version="4.14.1", folder=ROOT / "tests" / "dashboard" / "vendor",
        sha512="FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
        files={"axe.min.js": "axe.min.js", "LICENSE": "axe.LICENSE"}),
)


def main():
    """Write all files."""
    for asset in ASSETS:
        found = asset.fetched()
        write_all(asset.folder, found)
        sizes = ", ".join(f"{name} ({len(data):,} B)" for name, data in found.items())
        print(f"{asset.package} {asset.version}: {sizes}")


if __name__ == "__main__":
    main()
