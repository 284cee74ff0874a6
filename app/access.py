"""Who may command: viewers see, operators command. `judge` decides it from plain facts; the rest reads those facts.

Nothing here draws, and nothing is written without it: `app/session.py` asks again for every row. Where something is
misconfigured the page is view-only, never open. The secret stays in the environment and is compared where it is typed.
"""

from __future__ import annotations

import getpass
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

import streamlit as st

from engine.config.operators import (
    HOST_VARIABLE,
    OPERATORS_VARIABLE,
    SECRET_VARIABLE,
    folded,
    is_loopback,
    operators_of,
    secret_of,
    secret_problem,
)

USER_VARIABLE = "BIDIRL_USER"

KNOWN_BY_SECRET = "(secret)"
"""Behind the name in rows of those who gave it themselves, so that it passes for nobody's e-mail address."""

MAX_NAME_CHARS = 40
"""A name, not a message; the log of commands shows it in a narrow column."""

RULE = "Viewers see, operators command"
SIGN_IN = f"{RULE}: sign in at the top of the page."
"""What a viewer lacks who has not tried to become anything else."""

PROXY_HEADERS = ("Forwarded", "X-Forwarded-For", "X-Real-Ip")
"""A proxy says with one of these that somebody elsewhere asks."""

SIGNED_IN = "_signed_in"
"""Where a session keeps that it entered the secret."""

How = Literal["local", "secret", "login"]


class NotAllowed(PermissionError):
    """A viewer tried to command; the text says what would make an operator of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How the page is served and which ways to sign in it has."""

    secret: bool
    """An operator secret is set, and it is long enough."""
    login: bool
    """OpenID Connect is configured."""
    operators: frozenset[str]
    """Folded e-mail addresses that may command."""
    elsewhere: str
    """Why others than who sits at the machine may reach the page, "" where they cannot."""
    local_user: str
    """Who sits at the machine."""
    problems: tuple[str, ...] = ()
    """What is misconfigured, in sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedIn:
    """This session entered the right secret. An object, so that no text that a browser sends can pass for it."""

    name: str
    """As they gave it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """What is known of whoever looks at the page."""

    login: bool = False
    """They signed in with OpenID Connect."""
    email: str | None = None
    """Their address, where the provider gave one."""
    verified: bool = True
    """False where the provider says that the address is not theirs for certain; many say nothing."""
    signed_in: SignedIn | None = None
    """They entered the secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a visitor may do, and why."""

    may_command: bool
    """An operator, else a viewer."""
    who: str
    """The name in rows; "" where nothing is known."""
    reason: str
    """A sentence: how an operator is known, or what a viewer lacks."""
    how: How | None = None
    """How an operator is known, None for a viewer."""


def judge(setting: Setting, visitor: Visitor) -> Access:
    """Operator by e-mail address, by secret, or by sitting at a machine whose page asks for neither; else a viewer."""
    who = visitor.email or ""
    if setting.login and visitor.login and visitor.verified and folded(who) in setting.operators:
        return Access(may_command=True, who=who, reason=f"{OPERATORS_VARIABLE} names your address.", how="login")
    if setting.secret and visitor.signed_in is not None:
        return Access(
            may_command=True,
            who=f"{who or visitor.signed_in.name} {KNOWN_BY_SECRET}",
            reason="You entered the operator secret; that ends with this session.",
            how="secret",
        )
    if is_local(setting):
        return Access(
            may_command=True,
            who=setting.local_user,
            reason="Only this machine reaches the page, so whoever sits at it is an operator.",
            how="local",
        )
    return Access(may_command=False, who=who, reason=_lacks(setting, visitor))


def is_local(setting: Setting) -> bool:
    """Whether nobody has to sign in."""
    return not (setting.secret or setting.login or setting.elsewhere or setting.problems)


def nobody_may(setting: Setting) -> str:
    """Why nobody at all may command, "" where somebody may."""
    if setting.secret or (setting.login and setting.operators) or is_local(setting):
        return ""
    if setting.problems:
        return "Something is misconfigured."
    if setting.login:
        return f"{OPERATORS_VARIABLE} names nobody who may command."
    return f"{setting.elsewhere}, and it has no login: set {SECRET_VARIABLE}, or configure OpenID Connect."


def _lacks(setting: Setting, visitor: Visitor) -> str:
    if reason := nobody_may(setting):
        return f"The page is view-only. {' '.join((reason, *(f'{problem}.' for problem in setting.problems)))}"
    if visitor.login and not setting.secret:
        if visitor.email is None:
            return f"{RULE}: your provider gave no e-mail address to know you by."
        if not visitor.verified:
            return f"{RULE}: your provider has not verified {visitor.email}."
        return f"{RULE}: {OPERATORS_VARIABLE} does not name {visitor.email}."
    return SIGN_IN


def matches(typed: str, secret: str) -> bool:
    """Whether it is the secret, in a time that says nothing about how much of it is right or how long it is."""
    return hmac.compare_digest(_digest(typed.strip()), _digest(secret))


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogateescape")).digest()


def checked_name(typed: str) -> str:
    """The name for rows. Raises ValueError with what is wrong with it."""
    name = " ".join(typed.split())
    if not name:
        raise ValueError("Give a name: every command says who sent it.")
    if len(name) > MAX_NAME_CHARS:
        raise ValueError(f"A name has at most {MAX_NAME_CHARS} characters, this one has {len(name)}.")
    if not name.isprintable() or any(c in "@()" for c in name):
        raise ValueError("A name has no @, no brackets and nothing invisible: an address is said of who proved it.")
    return name


# -- the shell: from here on Streamlit and the environment are read ----------------------------------------------------


def access() -> Access:
    """What whoever looks at the page now may do."""
    return judge(setting(), visitor())


def setting() -> Setting:
    """As the environment, Streamlit's options and its secrets have it now."""
    # first: Streamlit puts what stands at the top of its secrets into the environment
    auth, unreadable = _auth()
    secret = secret_of(os.environ)
    operators, wrong = operators_of(os.environ)
    problems = [problem for problem in (unreadable, secret_problem(secret), wrong) if problem]
    if operators and not auth and not unreadable:
        problems.append(f"{OPERATORS_VARIABLE} is set, but no [auth] section of secrets.toml says how to sign in")
    return Setting(
        secret=secret is not None and secret_problem(secret) is None,
        login=bool(auth),
        operators=operators,
        elsewhere=_elsewhere(),
        local_user=local_user(),
        problems=tuple(problems),
    )


def visitor() -> Visitor:
    """Who Streamlit and this session say it is."""
    login = st.user.get("is_logged_in") is True
    email = st.user.get("email") if login else None
    signed_in = st.session_state.get(SIGNED_IN)
    return Visitor(
        login=login,
        email=email if isinstance(email, str) and email else None,
        verified=st.user.get("email_verified", True) in (True, "true"),
        signed_in=signed_in if isinstance(signed_in, SignedIn) else None,
    )


def providers() -> list[str | None]:
    """Names for `st.login`, None for the unnamed one."""
    auth, _ = _auth()
    named: list[str | None] = [name for name, value in auth.items() if _is_provider(value)]
    return [None, *named] if "client_id" in auth else named


def local_user() -> str:
    """Who sits at the machine: BIDIRL_USER, else the system's user, else "local"."""
    named = os.environ.get(USER_VARIABLE, "").strip()
    if named:
        return named
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "local"


def _auth() -> tuple[Mapping[str, object], str | None]:
    """The [auth] section, empty without one; and why the secrets cannot be read, which is not the same."""
    if st.secrets.load_if_toml_exists():
        found = st.secrets.get("auth", {})
        return (found, None) if isinstance(found, Mapping) else ({}, "auth in secrets.toml must be a section")
    unread = [path for path in st.get_option("secrets.files") if Path(path).exists()]
    return {}, f"{unread[0]} cannot be read: it must be TOML" if unread else None


def _is_provider(value: object) -> bool:
    return isinstance(value, Mapping) and "client_id" in value


def _elsewhere() -> str:
    """Who starts the page and Streamlit itself both say where it listens; the wider of the two counts."""
    listens = [address for address in (os.environ.get(HOST_VARIABLE), st.get_option("server.address")) if address]
    if not listens:
        return "The page listens on every address of this machine"
    if wide := [address for address in listens if not is_loopback(address)]:
        return f"The page listens on {wide[0]}, where others reach it"
    if any(header in st.context.headers for header in PROXY_HEADERS):
        return "The page is reached through a proxy"
    return ""
