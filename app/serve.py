"""What `streamlit run app/serve.py` serves: `app/main.py`, whose pages a new tab shows as soon as it can.

    server start --> warm: the live charts' files, and every module that the pages import
    tab --> document, which names what the first chart will need: it comes while Streamlit connects and the script runs
        --> app/static/NAME-HASH.js, to be kept: a browser that has been here before keeps plotly.js compiled as well

Streamlit says nothing of how long a static file may be kept, so without this every tab fetches and compiles 5 MB anew.
It refuses nothing: without the live charts' files the pages say so themselves.
"""

from __future__ import annotations

import importlib
import logging
import re
import sys
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import streamlit as st
from starlette.middleware import Middleware

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:  # streamlit puts the folder of this file on the path, not the one above it
    sys.path.insert(0, str(HERE.parent))

from app.live_chart import AssetsUnavailable, publish  # noqa: E402 - the path comes first

MODULES = ("board", "host", "look", "keys", "packed", "table", "cards", "status", "attention", "tip")
"""What Live's board imports, which is more than what any other chart does."""

NEEDED = {"plotly": '<link rel="preload" as="script" href="./{}">'} | dict.fromkeys(
    MODULES, '<link rel="modulepreload" href="./{}">'
)
"""What the first chart of a page needs, and how a document asks for it; addresses are relative, as Streamlit's own."""

NAMED_BY_CONTENT = re.compile(r"/app/static/[a-z_]+-[0-9a-f]{12}\.js$")
"""Another content has another name, so these are never asked for again."""

KEPT = b"public, immutable, max-age=31536000"

FRESH = (b"accept-encoding", b"if-none-match", b"if-modified-since", b"range")
"""Headers of a request that would be answered with less than the whole plain document."""

Message = dict[str, Any]


def links() -> bytes:
    """Lines for the head of a document; none when the files cannot be put where they are served."""
    try:
        names = publish()
    except AssetsUnavailable:
        return b""
    return "\n".join(line.format(names[name]) for name, line in NEEDED.items()).encode()


class FirstPicture:
    """ASGI middleware: documents name what their first chart needs, files named by their content may be kept."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self._links = links()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, and change its answer where it is one of the two."""
        headers = dict(scope.get("headers", ()))
        if scope["type"] != "http" or scope["method"] != "GET":
            await self.app(scope, receive, send)
        elif NAMED_BY_CONTENT.search(scope["path"]):
            await self.app(scope, receive, lambda message: send(_kept(message)))
        elif self._links and b"text/html" in headers.get(b"accept", b""):
            asked = [(name, value) for name, value in scope["headers"] if name not in FRESH]
            document = _Document(send, self._links)
            await self.app({**scope, "headers": asked, "extensions": {}}, receive, document.send)
        else:
            await self.app(scope, receive, send)


def _kept(message: Message) -> Message:
    if message["type"] != "http.response.start" or message["status"] != 200:
        return message
    return {**message, "headers": [*message["headers"], (b"cache-control", KEPT)]}


class _Document:
    """Holds an HTML document back until it is whole and sends it with the links in its head; all else as it comes."""

    def __init__(self, send: Any, links: bytes) -> None:
        self._send, self._links = send, links
        self._start: Message | None = None
        self._body = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_html(message):
            self._start = message
        elif self._start is None:
            await self._send(message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._whole(self._start)

    async def _whole(self, start: Message) -> None:
        body = self._body.replace(b"</head>", self._links + b"\n</head>", 1)
        changed = {b"content-length": str(len(body)).encode()}
        kept = [(name, value) for name, value in start["headers"] if name not in (*changed, b"etag", b"last-modified")]
        await self._send({**start, "headers": [*kept, *changed.items()]})
        await self._send({"type": "http.response.body", "body": body})


def _is_html(start: Message) -> bool:
    return start["status"] == 200 and dict(start["headers"]).get(b"content-type", b"").startswith(b"text/html")


def warm(names: Iterable[str]) -> None:
    """Import modules that the first visitor would else wait for. One that cannot be imported says so on its page."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:
            logging.getLogger(__name__).exception("%s could not be imported", name)


def pages() -> list[str]:
    """Modules of the pages: `app/app_pages/NAME.py` only calls `app/NAME_page.py`."""
    return [f"app.{path.stem}" for path in sorted(HERE.glob("*_page.py"))]


@asynccontextmanager
async def lifespan(_: st.App) -> AsyncIterator[None]:
    """Warm up while the server answers already."""
    threading.Thread(target=warm, args=(pages(),), name="warm", daemon=True).start()
    yield


app = st.App(HERE / "main.py", lifespan=lifespan, middleware=[Middleware(FirstPicture)])
