"""Puts what the browser needs where Streamlit serves it, so that pages work without a network.

plotly.js is taken from the installed plotly package and never kept in the repository. Names carry a hash of the
content, so that a browser never runs an old copy.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import plotly

STATIC_DIR = Path(__file__).resolve().parent.parent / "static"
"""Served under app/static/ because it lies beside the app's main script."""

SOURCES = {
    "host": Path(__file__).parent / "host.js",
    "cards": Path(__file__).parent / "cards.js",
    "plotly": Path(plotly.__file__).parent / "package_data" / "plotly.min.js",
}
"""Name -> JavaScript file."""

HASH_LENGTH = 12
"""Hexadecimal digits of the content's SHA-256 in a file name: enough to tell versions apart."""


class AssetsUnavailable(RuntimeError):
    """The static folder cannot be filled; live charts cannot be drawn."""


def publish(static_dir: Path = STATIC_DIR) -> dict[str, str]:
    """Copy the files into `static_dir` unless they are there.

    Returns name -> address relative to the server's root, without a leading slash. Raises AssetsUnavailable naming the
    folder.
    """
    try:
        static_dir.mkdir(parents=True, exist_ok=True)
        return {name: f"app/static/{_copy(source, static_dir, name)}" for name, source in SOURCES.items()}
    except OSError as error:
        raise AssetsUnavailable(f"the live charts' files cannot be put into {static_dir}: {error}") from None


def _copy(source: Path, folder: Path, stem: str) -> str:
    content = source.read_bytes()
    name = f"{stem}-{hashlib.sha256(content).hexdigest()[:HASH_LENGTH]}.js"
    if (folder / name).exists():
        return name
    # written aside and renamed: a second app that starts at the same moment never serves half a file
    handle, aside = tempfile.mkstemp(dir=folder, prefix=f".{stem}-")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.chmod(aside, 0o644)
    os.replace(aside, folder / name)
    for old in folder.glob(f"{stem}-*.js"):
        if old.name != name:
            old.unlink(missing_ok=True)
    return name
