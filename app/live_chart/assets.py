"""Puts what the browser needs where Streamlit serves it, so that pages work without a network.

plotly.js is taken from the installed plotly package and never kept in the repository. Names carry a hash of the
content, so that a browser never runs an old copy; a module names those that it imports by these names.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import plotly

HERE = Path(__file__).parent

STATIC_DIR = HERE.parent / "static"
"""Served under app/static/ because it lies beside the app's main script."""

SOURCES = {
    "look": HERE / "look.js",
    "table": HERE / "table.js",
    "keys": HERE / "keys.js",
    "packed": HERE / "packed.js",
    "picture": HERE / "picture.js",
    "host": HERE / "host.js",
    "cards": HERE / "cards.js",
    "tip": HERE / "tip.js",
    "status": HERE / "status.js",
    "attention": HERE / "attention.js",
    "board": HERE / "board.js",
    "plotly": Path(plotly.__file__).parent / "package_data" / "plotly.min.js",
}
"""Name -> JavaScript file; a module comes after those that it imports."""

COMPILED_AT_ONCE = b"//# allFunctionsCalledOnLoad\n"
"""Told of plotly.js: most of it runs as it loads. A Chromium that knows so compiles it beside the main thread, which is
then busy for 0.6 s of CPU in place of 1.1 s; a comment to every other browser."""

HASH_LENGTH = 12
"""Hexadecimal digits of the content's SHA-256 in a file name: enough to tell versions apart."""

KEPT_S = 86_400.0
"""Old copies stay for a day: a page that was opened before may ask for one, and so may another app on this folder."""


class AssetsUnavailable(RuntimeError):
    """The static folder cannot be filled; live charts cannot be drawn."""


def publish(static_dir: Path = STATIC_DIR) -> dict[str, str]:
    """Copy the files into `static_dir` unless they are there.

    Returns name -> address relative to the server's root, without a leading slash. Raises AssetsUnavailable naming the
    folder.
    """
    names: dict[str, str] = {}
    try:
        static_dir.mkdir(parents=True, exist_ok=True)
        for name, source in SOURCES.items():
            names[name] = _copy(_linked(source, names), static_dir, name)
    except OSError as error:
        raise AssetsUnavailable(f"the live charts' files cannot be put into {static_dir}: {error}") from None
    return {name: f"app/static/{file}" for name, file in names.items()}


def _linked(source: Path, names: dict[str, str]) -> bytes:
    """The file, with the published names of the modules that it imports, or what a browser should know of it."""
    content = source.read_bytes()
    if source.parent != HERE:
        return COMPILED_AT_ONCE + content
    for name, file in names.items():
        content = content.replace(f'"./{name}.js"'.encode(), f'"./{file}"'.encode())
    return content


def _copy(content: bytes, folder: Path, stem: str) -> str:
    name = f"{stem}-{hashlib.sha256(content).hexdigest()[:HASH_LENGTH]}.js"
    if (folder / name).exists():
        with suppress(OSError):  # of another user's making, who keeps it young
            os.utime(folder / name)
        return name
    # written aside and renamed: a second app that starts at the same moment never serves half a file
    handle, aside = tempfile.mkstemp(dir=folder, prefix=f".{stem}-")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.chmod(aside, 0o644)
    os.replace(aside, folder / name)
    for old in folder.glob(f"{stem}-*.js"):
        # another app may have taken it away just now
        with suppress(FileNotFoundError):
            if old.name != name and old.stat().st_mtime < time.time() - KEPT_S:
                old.unlink()
    return name
