"""Who may command, as far as the environment says it: its variables and what makes their values good. Pure.

`bidirl serve` refuses bad values when it starts; the page, which may be started without it, is view-only with them. It
decides nothing about people: that is `app/access.py`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

SECRET_VARIABLE = "BIDIRL_OPERATOR_SECRET"
"""The secret that makes whoever enters it an operator."""

OPERATORS_VARIABLE = "BIDIRL_OPERATORS"
"""E-mail addresses of those who are operators once they have signed in, separated by commas."""

HOST_VARIABLE = "BIDIRL_SERVE_HOST"
"""The address that `bidirl serve` tells the page to listen on; it sets this for the page."""

MIN_SECRET_CHARS = 12
"""Twelve random letters outlast centuries of the slowed-down tries; shorter secrets tend to be words."""


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches `address`. A name other than localhost is taken for one that others reach."""
    if address.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def secret_of(environment: Mapping[str, str]) -> str | None:
    """The operator secret without the spaces and line ends around it, None when the variable is not set."""
    secret = environment.get(SECRET_VARIABLE)
    return None if secret is None else secret.strip()


def secret_problem(secret: str | None) -> str | None:
    """Why this secret is refused; an empty one too, for somebody meant to set it."""
    if secret is None or len(secret) >= MIN_SECRET_CHARS:
        return None
    return (
        f"{SECRET_VARIABLE} has {len(secret)} characters and needs at least {MIN_SECRET_CHARS}; "
        "set a longer one, or unset it"
    )


def folded(email: str) -> str:
    """An address as it is compared: without case, but only in ASCII, where two letters never become one."""
    email = email.strip()
    return email.lower() if email.isascii() else email


def operators_of(environment: Mapping[str, str]) -> tuple[frozenset[str], str | None]:
    """Folded addresses of the operators, and what is wrong with the first entry that is no address."""
    entries = [entry.strip() for entry in environment.get(OPERATORS_VARIABLE, "").split(",")]
    wrong = [entry for entry in entries if entry and not _is_email(entry)]
    problem = f"{OPERATORS_VARIABLE} must be e-mail addresses separated by commas, got {wrong[0]!r}" if wrong else None
    return frozenset(folded(entry) for entry in entries if _is_email(entry)), problem


def _is_email(entry: str) -> bool:
    name, _, host = entry.partition("@")
    return bool(name and host) and "@" not in host and not any(c.isspace() or c in ";<>" for c in entry)
