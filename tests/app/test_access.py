"""Who may command, as a table of plain facts; names, secrets and addresses; and pauses after wrong secrets."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.access import (
    Access,
    NotAllowed,
    Setting,
    SignedIn,
    Visitor,
    checked_name,
    judge,
    matches,
    nobody_may,
)
from app.attempts import ADDRESS, PROCESS, SESSION, Attempts, ByAddress
from app.header import warning
from engine.config.operators import folded, is_loopback, operators_of, secret_of, secret_problem

APP = Path(__file__).parents[2] / "app"
SECRET = "correct horse battery"
WIDE = "The page listens on 0.0.0.0, where others reach it"


def make_setting(**fields: Any) -> Setting:
    known = {"secret": False, "login": False, "operators": frozenset(), "elsewhere": "", "local_user": "ana"}
    return Setting(**{**known, **fields})


def by_login(email: str | None = "ben@x.org", **fields: Any) -> Visitor:
    return Visitor(login=True, email=email, **fields)


ENTERED = SignedIn(name="Cleo")
OPERATORS = frozenset({"ben@x.org"})
BOTH = {"secret": True, "login": True, "operators": OPERATORS}


@pytest.mark.parametrize(
    ("setting", "visitor", "who"),
    [
        pytest.param({}, Visitor(), "ana", id="at the machine"),
        pytest.param({}, Visitor(signed_in=ENTERED), "ana", id="at the machine, whatever the session says"),
        pytest.param({"secret": True}, Visitor(signed_in=ENTERED), "Cleo (secret)", id="by secret"),
        pytest.param(
            {"secret": True, "elsewhere": WIDE}, Visitor(signed_in=ENTERED), "Cleo (secret)", id="from elsewhere"
        ),
        pytest.param({"login": True, "operators": OPERATORS}, by_login(), "ben@x.org", id="by address"),
        pytest.param({"login": True, "operators": OPERATORS}, by_login("Ben@X.org"), "Ben@X.org", id="in any case"),
        pytest.param(BOTH, by_login(), "ben@x.org", id="both ways there, by address"),
        pytest.param(BOTH, Visitor(signed_in=ENTERED), "Cleo (secret)", id="both ways there, by secret"),
        pytest.param(
            BOTH, by_login("dan@x.org", signed_in=ENTERED), "dan@x.org (secret)", id="a known viewer with the secret"
        ),
        pytest.param(BOTH, by_login(signed_in=ENTERED), "ben@x.org", id="both ways used"),
        pytest.param(
            {"login": True, "operators": OPERATORS, "problems": ("wrong",)},
            by_login(),
            "ben@x.org",
            id="one way broken",
        ),
    ],
)
def test_an_operator_is_known_by_address_by_secret_or_by_sitting_there(
    setting: dict[str, Any], visitor: Visitor, who: str
) -> None:
    found = judge(make_setting(**setting), visitor)
    assert (found.may_command, found.who) == (True, who)
    assert found.how is not None


@pytest.mark.parametrize(
    ("setting", "visitor", "says"),
    [
        pytest.param({"secret": True}, Visitor(), "sign in", id="before the secret"),
        pytest.param({"elsewhere": WIDE}, Visitor(), "it has no login", id="open to others without a login"),
        pytest.param({"elsewhere": WIDE}, Visitor(signed_in=ENTERED), "it has no login", id="a secret that is gone"),
        pytest.param({"elsewhere": WIDE}, by_login(), "it has no login", id="a login that is not configured"),
        pytest.param({"problems": ("too short",)}, Visitor(), "too short.", id="a refused secret at the machine"),
        pytest.param(
            {"problems": ("too short",)}, Visitor(signed_in=ENTERED), "too short.", id="a refused secret, entered"
        ),
        pytest.param({"login": True, "operators": OPERATORS}, Visitor(), "sign in", id="before signing in"),
        pytest.param({"login": True}, by_login(), "names nobody", id="no operators"),
        pytest.param(
            {"login": True, "operators": OPERATORS}, by_login("dan@x.org"), "does not name dan@x.org", id="not named"
        ),
        pytest.param({"login": True, "operators": OPERATORS}, by_login(None), "gave no e-mail", id="no address"),
        pytest.param(
            {"login": True, "operators": OPERATORS}, by_login(verified=False), "not verified ben@x.org", id="unverified"
        ),
        pytest.param(
            {"login": True, "operators": OPERATORS},
            Visitor(login=False, email="ben@x.org"),
            "sign in",
            id="an address without a login",
        ),
        pytest.param(BOTH, by_login("dan@x.org"), "sign in", id="a known viewer who may enter the secret"),
    ],
)
def test_everybody_else_is_a_viewer_and_is_told_why(setting: dict[str, Any], visitor: Visitor, says: str) -> None:
    found = judge(make_setting(**setting), visitor)
    assert not found.may_command
    assert found.how is None
    assert says in found.reason
    assert found.reason.endswith(".")


def test_the_facts_alone_decide() -> None:
    fields = {"login": (False, True), "secret": (False, True), "elsewhere": ("", WIDE), "problems": ((), ("wrong",))}
    visitors = [Visitor(), Visitor(signed_in=ENTERED), by_login(), by_login("dan@x.org"), by_login(verified=False)]
    for login in fields["login"]:
        for secret in fields["secret"]:
            for elsewhere in fields["elsewhere"]:
                for problems in fields["problems"]:
                    setting = make_setting(
                        login=login, secret=secret, elsewhere=elsewhere, problems=problems, operators=OPERATORS
                    )
                    found: list[Access] = [judge(setting, visitor) for visitor in visitors]
                    # whoever gave no proof commands only where nothing asks for any and nobody else gets there
                    assert found[0].may_command == (not (login or secret or elsewhere or problems))
                    assert all(one.who for one in found if one.may_command)
                    if nobody_may(setting):
                        assert not any(one.may_command for one in found)


def test_everybody_is_warned_of_what_is_misconfigured_and_of_a_page_that_nobody_commands() -> None:
    assert warning(make_setting()) == ""
    assert warning(make_setting(secret=True, elsewhere=WIDE)) == ""
    assert warning(make_setting(login=True, operators=OPERATORS, problems=("It is short",))) == "It is short."
    assert warning(make_setting(problems=("It is short",))).startswith("View-only, for everybody.")
    assert "set BIDIRL_OPERATOR_SECRET, or configure" in warning(make_setting(elsewhere=WIDE))


def test_a_refusal_survives_pickling_and_is_a_permission_error() -> None:
    error = pickle.loads(pickle.dumps(NotAllowed("sign in")))
    assert isinstance(error, PermissionError)
    assert str(error) == "sign in"


# -- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("", False),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example", False),
        ("unix:///run/page.sock", False),
    ],
)
def test_only_what_is_surely_the_loopback_is_one(address: str, loopback: bool) -> None:
    assert is_loopback(address) == loopback


def test_a_secret_is_taken_without_the_line_end_of_its_file() -> None:
    assert secret_of({}) is None
    assert secret_problem(None) is None
    assert secret_of({"BIDIRL_OPERATOR_SECRET": f"{SECRET}\n"}) == SECRET
    assert secret_problem("a" * 12) is None
    assert "has 11 characters" in str(secret_problem("a" * 11))
    assert "a" * 11 not in str(secret_problem("a" * 11))


def test_addresses_are_compared_without_case_but_letters_are_never_mixed_up() -> None:
    operators, problem = operators_of({"BIDIRL_OPERATORS": " Ana@X.org, mark@x.org,,"})
    assert operators == {"ana@x.org", "mark@x.org"}
    assert problem is None
    # the sign for kelvin becomes a k in lower case, and so does a sharp s two letters when folded
    assert folded("mar\u212a@x.org") not in operators
    assert folded("stra\u00dfe@x.org") != folded("strasse@x.org")


@pytest.mark.parametrize("entry", ["ben", "@x.org", "ben@", "a@b@c", "a@x.org;b@x.org", "Ben <ben@x.org>"])
def test_an_entry_that_is_no_address_is_named_and_makes_nobody_an_operator(entry: str) -> None:
    operators, problem = operators_of({"BIDIRL_OPERATORS": f"ana@x.org,{entry}"})
    assert operators == {"ana@x.org"}
    assert repr(entry) in str(problem)


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        (SECRET, True),
        (f" {SECRET}\n", True),
        (SECRET.upper(), False),
        (SECRET[:-1], False),
        (SECRET + "x", False),
        ("", False),
        ("pässwörter ☂", False),
    ],
)
def test_only_the_whole_secret_is_right(typed: str, right: bool) -> None:
    assert matches(typed, SECRET) == right


def test_a_secret_need_not_be_ascii() -> None:
    assert matches("pässwörter ☂", "pässwörter ☂")


@pytest.mark.parametrize(
    ("typed", "name"),
    [("Ana", "Ana"), ("  Ana \t Müller ", "Ana Müller"), ("x" * 40, "x" * 40), ("Ana\nben", "Ana ben")],
)
def test_a_name_is_one_line(typed: str, name: str) -> None:
    assert checked_name(typed) == name


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("", "Give a name"),
        (" \n", "Give a name"),
        ("x" * 41, "at most 40 characters, this one has 41"),
        ("ana@x.org", "no @"),
        ("Ana (secret)", "no brackets"),
        ("Ana\u202eneb", "nothing invisible"),
    ],
)
def test_a_name_cannot_pass_for_somebody_known_otherwise(typed: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        checked_name(typed)


# -- pauses -----------------------------------------------------------------------------------------------------------


def test_the_pause_of_a_session_doubles_up_to_a_minute_and_is_forgotten_when_it_is_quiet() -> None:
    attempts, pauses = Attempts(), []
    assert attempts.wait_s(SESSION, 1000.0) == 0.0
    for _ in range(8):
        attempts = attempts.after_wrong(1000.0)
        pauses.append(attempts.wait_s(SESSION, 1000.0))
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert attempts.wait_s(SESSION, 1059.0) == 1.0
    assert attempts.wait_s(SESSION, 1060.0) == 0.0
    assert attempts.after_wrong(1000.0 + 900.1).wrong == 1
    assert Attempts(wrong=10_000, last_at=0.0).wait_s(SESSION, 0.0) == 60.0


def test_a_clock_that_was_set_back_makes_nobody_wait_longer_than_the_pause() -> None:
    assert Attempts().after_wrong(1000.0).wait_s(SESSION, 0.0) == 1.0


def test_new_sessions_of_one_address_are_slowed_down_and_other_addresses_are_not() -> None:
    known = ByAddress()
    asked = []

    def wrong() -> bool:
        asked.append(1)
        return False

    answers = [known.try_once("192.0.2.7", 1000.0, wrong) for _ in range(15)]
    assert answers[:10] == [(False, 0.0)] * 10
    assert answers[10] == (False, 1.0)
    assert answers[11:] == [(None, 1.0)] * 4
    assert len(asked) == ADDRESS.free + 1
    assert known.try_once("192.0.2.7", 1000.5, lambda: True) == (None, 0.5)
    assert known.try_once("192.0.2.8", 1000.0, lambda: True) == (True, 0.0)
    assert known.try_once("192.0.2.7", 1001.0, lambda: True) == (True, 0.0)


def test_many_addresses_together_get_one_try_a_second_and_a_quiet_operator_gets_the_next() -> None:
    known = ByAddress()
    for number in range(PROCESS.free + 1):
        right, wait_s = known.try_once(f"2001:db8::{number:x}", 1000.0, lambda: False)
        assert right is False
    assert wait_s == 1.0
    assert known.try_once("2001:db8::ffff", 1000.5, lambda: False) == (None, 0.5)
    assert known.try_once("192.0.2.8", 1001.0, lambda: True) == (True, 0.0)


# -- one way to write -------------------------------------------------------------------------------------------------

WRITES = {"set_setting", "set_note", "add_tag", "remove_tag", "accept", "apply", "reject", "supersede", "expire"}
"""Methods of the mailbox that write, besides `send`. A session has ways of its own to some of them."""


def calls(path: Path, is_one: Callable[[ast.Attribute], bool]) -> list[int]:
    return [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_one(node.func)
    ]


def test_no_page_writes_past_the_check() -> None:
    """Whoever adds a note or a setting writes it in `app/session.py`, behind `as_operator`."""

    def writes(call: ast.Attribute) -> bool:
        by_session = isinstance(call.value, ast.Name) and call.value.id == "session"
        return call.attr in (*WRITES, "send") and not by_session

    found = {path.name: calls(path, writes) for path in sorted(APP.rglob("*.py"))}
    assert {name for name, lines in found.items() if lines} == {"session.py"}
