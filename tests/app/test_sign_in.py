"""The operator secret: what it gives, where it is not kept, and what wrong ones cost."""

from __future__ import annotations

import logging

import pytest

from app import sign_in
from app.attempts import ADDRESS
from storage.paths import DataDir
from tests.app.visitors import click_disabled, enter, kept, rows, said, secret_field, show


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The moment of every try; a test moves it."""
    moment = [1_790_000_000.0]
    monkeypatch.setattr(sign_in, "now", lambda: moment[0])
    return moment


def test_the_secret_makes_an_operator_whose_rows_carry_the_given_name(folder: DataDir, secret: str) -> None:
    page = enter(show(), secret)
    assert "**Cleo (secret)** is an operator" in said(page)
    assert not page.button(key="launch_send").disabled
    page.button(key="launch_send").click().run()
    assert rows(folder) == [("launch", "Cleo (secret)")]
    page.switch_page("app_pages/runs.py").run()
    assert "**Cleo (secret)** is an operator" in said(page)


def test_the_secret_is_kept_nowhere(folder: DataDir, secret: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    page = enter(show(), f"not {secret}")
    assert secret not in kept(page)
    assert secret_field(page).value == ""
    page = enter(show(), secret)
    assert "is an operator" in said(page)
    assert secret not in kept(page)
    assert all(secret not in record.getMessage() for record in caplog.records if record.name.startswith("bidirl"))
    assert secret not in said(page)


def test_signing_out_makes_a_viewer(folder: DataDir, secret: str) -> None:
    page = enter(show(), secret)
    page.button(key="sign_out").click().run()
    assert "You are a viewer" in said(page)
    click_disabled(page, "launch_send")
    assert rows(folder) == []


def test_another_session_is_still_a_viewer(folder: DataDir, secret: str) -> None:
    enter(show(), secret)
    assert "You are a viewer" in said(show())


def test_a_wrong_secret_is_refused_counted_and_logged(
    folder: DataDir, secret: str, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    page = enter(show(), "battery horse correct")
    assert "That is not the secret. The next try is looked at in 1 s." in said(page)
    assert page.button(key="launch_send").disabled
    assert "A wrong operator secret from this machine, the session's 1 wrong secret." in caplog.messages
    assert "battery horse" not in caplog.text


def test_during_the_pause_not_even_the_right_secret_is_looked_at(
    folder: DataDir, secret: str, clock: list[float]
) -> None:
    page = enter(show(), "wrong")
    clock[0] += 1.0
    page = enter(page, "wrong")
    assert "The next try is looked at in 2 s." in said(page)
    clock[0] += 1.5
    page = enter(page, secret)
    assert "Too soon after 2 wrong secrets: this one was not looked at. Wait 1 s." in said(page)
    assert "You are a viewer" in said(page)
    clock[0] += 0.5
    assert "is an operator" in said(enter(page, secret))


def test_new_sessions_do_not_help_an_attacker(folder: DataDir, secret: str, clock: list[float]) -> None:
    for _ in range(ADDRESS.free + 1):
        page = enter(show(), "wrong")
    page = enter(show(), secret)
    assert "Too many wrong secrets were entered: this one was not looked at. Wait 1 s." in said(page)
    clock[0] += 1.0
    assert "is an operator" in said(enter(page, secret))


@pytest.mark.parametrize(("name", "says"), [("", "Give a name"), ("boss@x.org", "no @")])
def test_the_secret_needs_a_name_and_a_missing_one_is_no_wrong_try(
    folder: DataDir, secret: str, clock: list[float], name: str, says: str
) -> None:
    page = enter(show(), secret, name)
    assert says in said(page)
    assert page.button(key="launch_send").disabled
    assert secret not in kept(page)
    assert "is an operator" in said(enter(page, secret))
