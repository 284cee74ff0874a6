"""OpenID Connect, with the user that Streamlit would report: who of those who signed in commands."""

from __future__ import annotations

from typing import Any

import pytest

from engine.config.operators import OPERATORS_VARIABLE
from storage.paths import DataDir
from tests.app.visitors import AUTH, click_disabled, enter, keys, rows, said, secret_field, show


def logged_in(email: str | None, **claims: Any) -> dict[str, Any]:
    return {"is_logged_in": True, **({} if email is None else {"email": email}), **claims}


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OPERATORS_VARIABLE, "ben@x.org, Eva@X.org")


@pytest.mark.usefixtures("operators")
def test_who_is_not_signed_in_is_a_viewer_with_a_way_to_sign_in(folder: DataDir) -> None:
    page = show(secrets=AUTH)
    assert "You are a viewer" in said(page)
    assert page.button(key="launch_send").disabled
    assert "login_default" in keys(page)
    assert secret_field(page) is None


@pytest.mark.usefixtures("operators")
@pytest.mark.parametrize("email", ["ben@x.org", "eva@x.org", "BEN@X.ORG"])
def test_a_named_address_commands_and_stands_in_the_rows(folder: DataDir, email: str) -> None:
    page = show(user=logged_in(email), secrets=AUTH)
    assert f"**{email}** is an operator" in said(page)
    page.button(key="launch_send").click().run()
    assert rows(folder) == [("launch", email)]
    assert "logout" in keys(page)


@pytest.mark.usefixtures("operators")
@pytest.mark.parametrize(
    ("user", "says"),
    [
        (logged_in("dan@x.org"), "BIDIRL_OPERATORS does not name dan@x.org"),
        (logged_in(None, name="Ben"), "your provider gave no e-mail address"),
        (logged_in("ben@x.org", email_verified=False), "has not verified ben@x.org"),
        ({"is_logged_in": False, "email": "ben@x.org"}, "sign in at the top of the page"),
        ({"is_logged_in": "yes", "email": "ben@x.org"}, "sign in at the top of the page"),
        ({"email": "ben@x.org"}, "sign in at the top of the page"),
    ],
    ids=["another", "no address", "not verified", "signed out", "not true", "only an address"],
)
def test_others_who_signed_in_are_viewers(folder: DataDir, user: dict[str, Any], says: str) -> None:
    page = show(user=user, secrets=AUTH)
    assert says in said(page)
    click_disabled(page, "launch_send")
    assert rows(folder) == []


@pytest.mark.usefixtures("operators")
def test_signing_out_of_an_account_makes_a_viewer(folder: DataDir) -> None:
    page = show(user=logged_in("ben@x.org"), secrets=AUTH)
    page.button(key="logout").click().run()
    assert page.user == {"is_logged_in": False}
    page.run()
    assert page.button(key="launch_send").disabled


@pytest.mark.usefixtures("operators")
def test_with_both_ways_a_known_viewer_becomes_an_operator_by_secret_under_their_address(
    folder: DataDir, secret: str
) -> None:
    page = show(user=logged_in("dan@x.org"), secrets=AUTH)
    assert "**dan@x.org** is a viewer" in said(page)
    assert "sign_in_name" not in keys(page)
    page = enter(page, secret, name=None)
    page.button(key="launch_send").click().run()
    assert rows(folder) == [("launch", "dan@x.org (secret)")]
    page.button(key="logout").click().run()
    page.run()
    assert "You are a viewer" in said(page)


def test_every_provider_has_a_button_and_one_that_cannot_be_used_says_why(folder: DataDir) -> None:
    shared = {"redirect_uri": "http://localhost:8501/oauth2callback", "cookie_secret": "for the cookie"}
    named = {"client_id": "a", "client_secret": "b", "server_metadata_url": "https://id.example/c"}
    page = show(secrets={"auth": {**shared, "google": named, "okta": named}})
    assert {"login_google", "login_okta"} <= keys(page)
    assert "login_default" not in keys(page)
    page.button(key="login_okta").click().run()
    assert not page.exception
    assert "Signing in does not work here" in str(page.error[0].value)
