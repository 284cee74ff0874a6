"""Who is a viewer on which page, what is closed to them, and what is refused where the row is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.runtime.context import StreamlitHeaders

from app import session, sign_in
from engine.config.operators import HOST_VARIABLE, OPERATORS_VARIABLE, SECRET_VARIABLE
from storage.paths import DataDir
from tests.app.test_runs_page import chosen
from tests.app.visitors import PAGES, click_disabled, keys, rows, said, secret_field, show


@pytest.mark.parametrize("name", PAGES)
def test_whoever_sits_at_the_machine_is_an_operator_on_every_page(folder: DataDir, name: str) -> None:
    page = show(name)
    assert "**ana** is an operator" in said(page)
    assert "whoever sits at it is an operator" in said(page)
    assert secret_field(page) is None
    assert not keys(page) & {"sign_out", "logout"}
    assert not page.warning


@pytest.mark.parametrize("name", PAGES)
def test_a_page_that_others_reach_is_view_only_without_a_login_and_says_so(
    folder: DataDir, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOST_VARIABLE, "0.0.0.0")
    page = show(name)
    assert "View-only, for everybody. The page listens on 0.0.0.0" in str(page.warning[0].value).replace("\\", "")
    assert "You are a viewer" in said(page)
    assert secret_field(page) is None
    assert "login_default" not in keys(page)


def test_a_page_that_does_not_know_where_it_listens_is_view_only(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(HOST_VARIABLE)
    read = st.get_option
    # our own settings name an address; somebody else's way of starting the page need not
    monkeypatch.setattr(st, "get_option", lambda name: None if name == "server.address" else read(name))
    page = show()
    assert "listens on every address of this machine" in said(page)
    assert page.button(key="launch_send").disabled


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-Ip"])
def test_a_page_behind_a_proxy_is_not_only_reached_from_the_machine(
    folder: DataDir, header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(st.context), "headers", StreamlitHeaders([(header.lower(), "198.51.100.4")]))
    page = show()
    assert "The page is reached through a proxy" in said(page)
    assert page.button(key="launch_send").disabled


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        (SECRET_VARIABLE, "short", "BIDIRL_OPERATOR_SECRET has 5 characters and needs at least 12"),
        (SECRET_VARIABLE, "", "BIDIRL_OPERATOR_SECRET has 0 characters"),
        (OPERATORS_VARIABLE, "ben@x.org", "is set, but no [auth] section of secrets.toml says how to sign in"),
        (OPERATORS_VARIABLE, "ben", "must be e-mail addresses separated by commas, got 'ben'"),
    ],
)
@pytest.mark.parametrize("page_name", PAGES)
def test_what_is_misconfigured_closes_the_page_and_is_said(
    folder: DataDir, name: str, value: str, says: str, page_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    page = show(page_name)
    assert says in str(page.warning[0].value).replace("\\", "")
    assert "You are a viewer" in said(page)
    assert secret_field(page) is None
    assert "short" not in said(page).replace("shorter", "")


def test_secrets_that_cannot_be_read_close_the_page(
    folder: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "secrets.toml"
    broken.write_text("[auth\n")
    read = st.get_option
    monkeypatch.setattr(st, "get_option", lambda name: [str(broken)] if name == "secrets.files" else read(name))
    page = show()
    assert f"{broken} cannot be read: it must be TOML" in said(page)
    assert page.button(key="launch_send").disabled


@pytest.mark.parametrize("key", ["launch_send", "one_click"])
def test_a_viewer_cannot_launch_even_where_the_browser_forgets_that_the_button_is_disabled(
    folder: DataDir, secret: str, key: str
) -> None:
    page = show()
    assert "Viewers see, operators command: sign in at the top of the page." in said(page)
    click_disabled(page, key)
    assert rows(folder) == []


@pytest.mark.parametrize("key", ["launch_send", "one_click"])
def test_what_a_page_forgot_to_close_is_refused_where_the_row_is_written(
    folder: DataDir, secret: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "may_command", lambda: (True, ""))
    page = show()
    page.button(key=key).click().run()
    assert not page.exception
    assert rows(folder) == []
    assert "sign in at the top of the page" in str(page.error[0].value)


def test_a_viewer_may_look_at_the_dry_run(folder: DataDir, secret: str) -> None:
    page = show()
    page.button(key="launch_dry_run").click().run()
    assert any("worked_only_steps" in code.value for code in page.code)


def test_a_viewer_can_neither_resume_nor_delete(folder: DataDir, secret: str) -> None:
    page = show("runs", **chosen("old-1"))
    assert page.button(key="run_resume").disabled
    assert not page.button(key="run_open").disabled
    assert not page.button(key="run_clone").disabled
    # the popover is closed, and what is in it is not
    page.button(key="run_delete_confirm").click().run()
    assert not page.exception
    assert rows(folder) == []
    assert "The command was not sent" in str(page.error[0].value)


@pytest.mark.parametrize("forged", ["Cleo", True, {"name": "Cleo"}])
def test_what_a_browser_could_put_into_the_session_makes_nobody_an_operator(
    folder: DataDir, secret: str, forged: Any
) -> None:
    page = show(**{sign_in.SIGNED_IN: forged})
    assert page.button(key="launch_send").disabled
