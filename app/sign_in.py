"""Signing in and out: the operator secret for one session, OpenID Connect through Streamlit.

What is typed as secret is taken out of the session in the very callback that reads it, and its field is replaced by a
new one: it is compared there and kept nowhere, neither here nor in the browser's page. A session that entered the right
one keeps an object that says so, and the name.
"""

from __future__ import annotations

import logging
import math
import os

import streamlit as st
from streamlit.errors import Error as StreamlitError

from app.access import (
    MAX_NAME_CHARS,
    RULE,
    SIGN_IN,
    SIGNED_IN,
    Access,
    SignedIn,
    Visitor,
    checked_name,
    matches,
    setting,
    visitor,
)
from app.access import providers as login_providers
from app.attempts import SESSION, Attempts, ByAddress
from app.markup import literal
from app.session import now
from app.status import symbol
from engine.config.operators import secret_of

NAME, ROUND = "sign_in_name", "_sign_in_round"
ATTEMPTS, PROBLEM = "_sign_in_attempts", "_sign_in_problem"

PANEL_WIDTH_PX = 320
"""A sentence takes two or three lines, and the panel keeps its width when another one is said."""

log = logging.getLogger("bidirl.app")


@st.cache_resource
def by_address() -> ByAddress:
    """Wrong secrets of all sessions of this process."""
    return ByAddress()


def panel(found: Access) -> None:
    """What the visitor may do and why; ways to become an operator, or to stop being one."""
    with st.container(width=PANEL_WIDTH_PX):
        if found.may_command:
            st.markdown(f"**{literal(found.who)}** is an operator")
            st.caption(literal(f"{found.reason} Commands are logged under this name."))
        else:
            st.markdown(f"**{literal(found.who)}** is a viewer" if found.who else "You are a viewer")
            st.caption(literal(f"{RULE}." if found.reason == SIGN_IN else found.reason))
        here, known = visitor(), setting()
        if found.how == "secret":
            st.button("Sign out", icon=symbol("logout"), key="sign_out", on_click=sign_out, width="stretch")
        elif known.secret and not found.may_command:
            _secret_form(here)
        if known.login:
            _login(here)


def _secret_key() -> str:
    """Key of the field for the secret: another one after every try, so that its value goes with it."""
    return f"sign_in_secret_{st.session_state.get(ROUND, 0)}"


def _secret_form(here: Visitor) -> None:
    with st.form("sign_in", border=False):
        if here.email is None:
            st.text_input("Your name", key=NAME, max_chars=MAX_NAME_CHARS, autocomplete="username")
        st.text_input("Operator secret", key=_secret_key(), type="password", autocomplete="current-password")
        st.form_submit_button("Become an operator", type="primary", on_click=submitted, width="stretch")
    if problem := st.session_state.get(PROBLEM):
        st.error(literal(problem), icon=symbol("error"))


def submitted() -> None:
    """The form was sent."""
    typed = str(st.session_state.pop(_secret_key(), None) or "")
    st.session_state[ROUND] = st.session_state.get(ROUND, 0) + 1
    try:
        name = visitor().email or checked_name(str(st.session_state.get(NAME) or ""))
    except ValueError as error:
        st.session_state[PROBLEM] = str(error)
        return
    st.session_state[PROBLEM] = _refusal(typed)
    if st.session_state[PROBLEM] is None:
        st.session_state[SIGNED_IN] = SignedIn(name=name)


def _refusal(typed: str) -> str | None:
    """Why this secret makes nobody an operator, None when it does; counts it when it is wrong."""
    secret = secret_of(os.environ) if setting().secret else None
    if secret is None:
        return "There is no operator secret to enter."
    moment = now()
    attempts: Attempts = st.session_state.get(ATTEMPTS, Attempts())
    if wait_s := attempts.wait_s(SESSION, moment):
        return f"Too soon after {_times(attempts.wrong)}: this one was not looked at. Wait {_seconds(wait_s)}."
    right, wait_s = by_address().try_once(_address(), moment, lambda: matches(typed, secret))
    if right:
        st.session_state.pop(ATTEMPTS, None)
        return None
    if right is None:
        return f"Too many wrong secrets were entered: this one was not looked at. Wait {_seconds(wait_s)}."
    attempts = st.session_state[ATTEMPTS] = attempts.after_wrong(moment)
    log.warning("A wrong operator secret from %s, the session's %s.", _address(), _times(attempts.wrong))
    wait_s = max(wait_s, attempts.wait_s(SESSION, moment))
    return f"That is not the secret. The next try is looked at in {_seconds(wait_s)}."


def _address() -> str:
    """Where the visitor's connection comes from; a proxy's where there is one."""
    found = st.context.ip_address
    return found if isinstance(found, str) else "this machine"


def _seconds(seconds: float) -> str:
    return f"{math.ceil(seconds)} s"


def _times(wrong: int) -> str:
    return "1 wrong secret" if wrong == 1 else f"{wrong} wrong secrets"


def sign_out() -> None:
    """Forget that this session entered the secret."""
    st.session_state.pop(SIGNED_IN, None)
    st.session_state.pop(PROBLEM, None)


def _login(here: Visitor) -> None:
    try:
        if here.login:
            if st.button("Sign out of your account", icon=symbol("logout"), key="logout", width="stretch"):
                sign_out()
                st.logout()
            return
        for name in login_providers():
            label = f"Sign in with {literal(name)}" if name else "Sign in with your account"
            if st.button(label, icon=symbol("login"), key=f"login_{name or 'default'}", width="stretch"):
                st.login(name) if name else st.login()
    except StreamlitError as error:
        # a package that is not installed, or a setting that is missing: Streamlit says which
        st.error(f"Signing in does not work here: {literal(str(error))}", icon=symbol("error"))
