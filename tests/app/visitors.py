"""How tests look at the pages as a viewer or an operator, and what those left behind. For tests only."""

from __future__ import annotations

from typing import Any

from streamlit.testing.v1 import AppTest

from storage.mailbox import Mailbox
from storage.paths import DataDir
from tests.app.test_live_page import MAIN, TIMEOUT_S, words

AUTH = {
    "auth": {
        "redirect_uri": "http://localhost:8501/oauth2callback",
        "cookie_secret": "for the cookie",
        "client_id": "bidirl",
        "client_secret": "for the provider",
        "server_metadata_url": "https://id.example/.well-known/openid-configuration",
    }
}
PAGES = ("live", "control", "launch", "runs")


def show(
    name: str = "launch",
    *,
    user: dict[str, Any] | None = None,
    secrets: dict[str, Any] | None = None,
    **state: Any,
) -> AppTest:
    page = AppTest.from_file(MAIN, default_timeout=TIMEOUT_S)
    page.user = user or {}
    for key, value in (secrets or {}).items():
        page.secrets[key] = value
    for key, value in state.items():
        page.session_state[key] = value
    if name != "live":
        page.switch_page(f"app_pages/{name}.py")
    page.run()
    assert not page.exception, page.exception
    return page


def keys(page: AppTest) -> set[str]:
    return {str(widget.key) for widget in (*page.button, *page.text_input)}


def secret_field(page: AppTest) -> Any:
    """The field for the secret, None without one; its key changes."""
    return next((field for field in page.text_input if field.label == "Operator secret"), None)


def click_disabled(page: AppTest, key: str) -> AppTest:
    """As a browser can that was told by somebody to forget that the button is disabled."""
    button = page.button(key=key)
    assert button.disabled
    button.proto.disabled = False
    button.click().run()
    assert not page.exception, page.exception
    return page


def enter(page: AppTest, typed: str, name: str | None = "Cleo") -> AppTest:
    """Fill the form in and send it."""
    if name is not None:
        page.text_input(key="sign_in_name").input(name)
    secret_field(page).input(typed)
    next(b for b in page.button if b.label == "Become an operator").click()
    page.run()
    assert not page.exception, page.exception
    return page


def said(page: AppTest) -> str:
    return words(page).replace("\\", "")


def rows(folder: DataDir) -> list[tuple[str, str]]:
    with Mailbox(folder.control_db) as mailbox:
        return [(c.kind, c.who) for c in mailbox.list()]


def kept(page: AppTest) -> str:
    """Everything that the session and the URL hold."""
    # what a session keeps of widgets has no public name, and is where a typed secret would stay
    inside = page._session_state._state if hasattr(page._session_state, "_state") else page._session_state
    parts = [inside._old_state, inside._new_session_state, inside._new_widget_state.states, page.query_params]
    return repr(parts)
