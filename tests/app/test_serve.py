"""What the server adds to Streamlit: documents name what their first chart needs, and files may be kept."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from app import serve
from app.live_chart import AssetsUnavailable

HTML = b"<html><head><title>x</title></head><body></body></html>"
JS = (b"content-type", b"application/javascript")


def asked(
    path: str, *, accept: bytes = b"text/html", method: str = "GET", status: int = 200, body: list[bytes] | None = None,
    headers: tuple[tuple[bytes, bytes], ...] = ((b"content-type", b"text/html; charset=utf-8"),),
) -> tuple[dict[str, Any], dict[bytes, bytes], bytes]:  # fmt: skip
    """Scope as the app below sees it, headers and body as a browser sees them."""
    seen: dict[str, Any] = {}
    sent: list[dict[str, Any]] = []
    pieces = [HTML] if body is None else body

    async def below(scope: Any, receive: Any, send: Any) -> None:
        seen.update(scope)
        told = [*headers, (b"content-length", str(len(b"".join(pieces))).encode()), (b"etag", b'"1"')]
        await send({"type": "http.response.start", "status": status, "headers": told})
        for number, piece in enumerate(pieces, 1):
            await send({"type": "http.response.body", "body": piece, "more_body": number < len(pieces)})

    async def keep(message: dict[str, Any]) -> None:
        sent.append(message)

    asking = [(b"accept", accept), (b"accept-encoding", b"gzip"), (b"if-none-match", b'"1"'), (b"cookie", b"a=b")]
    scope = {"type": "http", "method": method, "path": path, "headers": asking}
    asyncio.run(serve.FirstPicture(below)(scope, None, keep))
    start = next(message for message in sent if message["type"] == "http.response.start")
    return seen, dict(start["headers"]), b"".join(message.get("body", b"") for message in sent)


@pytest.mark.parametrize("body", [[HTML], [HTML[:20], HTML[20:30], HTML[30:]]], ids=["whole", "in-pieces"])
def test_a_document_names_what_its_first_chart_needs(body: list[bytes]) -> None:
    seen, headers, got = asked("/timeline", body=body)
    assert headers[b"content-length"] == str(len(got)).encode()
    assert b"etag" not in headers  # it is that of the document without the links
    assert got.startswith(b"<html><head><title>x</title>")
    assert got.endswith(b"</head><body></body></html>")
    head = got.split(b"</head>")[0].decode()
    assert 'rel="preload" as="script" href="./app/static/plotly-' in head
    assert head.count('rel="modulepreload"') == len(serve.MODULES)
    named = [part.split('"')[0] for part in head.split('href="./')[1:]]
    assert [name for name in named if not (Path(serve.HERE) / name.removeprefix("app/")).is_file()] == []
    # nothing that would be answered with less than the whole plain document is asked for
    assert dict(seen["headers"]) == {b"accept": b"text/html", b"cookie": b"a=b"}


def test_every_module_that_a_chart_imports_when_it_loads_is_asked_for_at_once() -> None:
    sources, found, left = Path(serve.HERE) / "live_chart", set[str](), ["board"]
    while left:
        name = left.pop()
        found.add(name)
        imported = re.findall(r'^import [^;]*from "\./(\w+)\.js";', (sources / f"{name}.js").read_text(), re.MULTILINE)
        left += [other for other in imported if other not in found]
    assert found == set(serve.MODULES)


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("/_stcore/health", {"accept": b"*/*"}),
        ("/timeline", {"method": "POST"}),
        ("/timeline", {"status": 404}),
        ("/media/picture.png", {"headers": ((b"content-type", b"image/png"),)}),
    ],
    ids=["not-a-document", "not-asked-for", "not-found", "not-html"],
)
def test_anything_else_passes_as_it_is(path: str, options: dict[str, Any]) -> None:
    _, headers, got = asked(path, **options)
    assert got == HTML
    assert headers[b"etag"] == b'"1"'
    assert b"cache-control" not in headers


def test_a_file_that_is_named_by_its_content_is_kept_for_ever_and_no_other_file_is() -> None:
    def kept(path: str, **options: Any) -> bytes | None:
        return asked(path, accept=b"*/*", headers=(JS,), **options)[1].get(b"cache-control")

    assert kept("/app/static/plotly-0123456789ab.js") == serve.KEPT
    assert kept("/under/a/path/app/static/live_chart-0123456789ab.js") == serve.KEPT
    assert kept("/app/static/plotly-0123456789ab.js", status=404) is None
    assert kept("/app/static/plotly.js") is None


def test_a_server_whose_charts_files_cannot_be_put_anywhere_serves_documents_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full() -> dict[str, str]:
        raise AssetsUnavailable("the disk is full")

    monkeypatch.setattr(serve, "publish", full)
    assert asked("/timeline")[2] == HTML


def test_every_page_is_imported_before_somebody_comes_and_a_broken_one_stops_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    called = set()
    for path in (serve.HERE / "app_pages").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        called |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name for name in called if name and name.startswith("app.")} == set(serve.pages())
    serve.warm(["app.no_such_page", "app.serve"])
    assert "app.no_such_page could not be imported" in caplog.text
