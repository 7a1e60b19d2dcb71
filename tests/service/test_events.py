"""Names of streams and events: what a store takes, and with which words others are refused."""

from __future__ import annotations

from typing import Any

import pytest

from calibeat.service.events import bad_name

BAD: list[tuple[Any, str]] = [
    ("", "id must be a text of 1 to 200 characters, got 0"),
    ("a" * 201, "id must be a text of 1 to 200 characters, got 201"),
    (7, "id must be a text of 1 to 200 characters, got 7"),
    ("b\x00", "id must be text without control characters, got 'b\\x00'"),
    ("a\n", "id must be text without control characters"),
    ("a\ud800", "id must be text without control characters"),
]


@pytest.mark.parametrize(("name", "sentence"), BAD)
def test_bad_names_are_explained(name: Any, sentence: str) -> None:
    assert bad_name("id", name).startswith(sentence)


@pytest.mark.parametrize("name", ["a", "x" * 200, "Paris é 東京", "."])
def test_good_names_pass(name: str) -> None:
    assert bad_name("stream", name) == ""
