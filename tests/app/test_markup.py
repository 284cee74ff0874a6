"""Foreign text is never markup."""

from __future__ import annotations

import pytest

from app.markup import literal


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words, 100% of 3.5", "plain words, 100% of 3.5"),
        ("<b>bold</b>", "\\<b\\>bold\\</b\\>"),
        ("**x** [a](b) $y$ :red[z]", "\\*\\*x\\*\\* \\[a\\](b) \\$y\\$ \\:red\\[z\\]"),
        ("two\n# lines", "two \\# lines"),
    ],
    ids=["plain", "html", "markdown", "lines"],
)
def test_text_is_shown_as_it_is(text: str, shown: str) -> None:
    assert literal(text) == shown
