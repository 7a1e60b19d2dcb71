"""Numbers and names as people read them."""

from __future__ import annotations

import math

import pytest

from calibeat._util import words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.46123, "0.4612"),
        (-0.5, "−0.5000"),
        (0.0, "0.0000"),
        (1234.5, "1,234.5000"),
        (4.2e9, "4.2e+09"),
        (0.00002, "2e-05"),
        (-0.00002, "−2e-05"),
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
    ],
)
def test_a_number(value: float | None, text: str) -> None:
    assert words.number(value) == text


def test_a_number_with_its_sign() -> None:
    assert [words.number(v, 2, sign=True) for v in (1.0, -1.0, 0.0)] == ["+1.00", "−1.00", "0.00"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7421.5, "7,422"),
        (-7421.5, "−7,422"),
        (0.0331234, "0.03312"),
        (123456.0, "1.235e+05"),
        (None, "–"),
        (math.nan, "–"),
    ],
)
def test_four_digits(value: float | None, text: str) -> None:
    assert words.significant(value) == text


def test_digits_of_a_column() -> None:
    assert words.decimals([0.46, None, math.nan]) == 4
    assert words.decimals([0.00021, -0.0001]) == 6
    assert words.decimals([1e-300]) == 9
    assert words.decimals([0.0]) == words.decimals([]) == 4
    assert words.decimals([5.0], at_least=1) == 2


def test_counts_and_shares() -> None:
    assert [words.count(v) for v in (0, 1234567, None)] == ["0", "1,234,567", "–"]
    assert [words.counted(v, "event") for v in (0, 1, 2000)] == ["0 events", "1 event", "2,000 events"]
    assert words.counted(2, "was", "were") == "2 were" and words.counted(1, "was", "were") == "1 was"
    assert [words.percent(v) for v in (0.0, 0.2345, 0.00004, -0.5, None, math.nan)] == [
        "0.0\u00a0%",
        "23.4\u00a0%",
        "0.004\u00a0%",
        "-50.0\u00a0%",
        "–",
        "–",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (3e-5, "30 µs"),
        (0.0045, "4.5 ms"),
        (0.25, "0.25 s"),
        (42, "42 s"),
        (90, "1.5 min"),
        (3600, "1 h"),
        (86400, "1 day"),
        (200000, "2.31 days"),
        (365.25 * 86400, "1 year"),
        (4e7, "1.27 years"),
        (1e12, "31,688 years"),
        (-90, "-1.5 min"),
        (None, "–"),
        (math.inf, "–"),
    ],
)
def test_a_duration(seconds: float | None, text: str) -> None:
    assert words.duration(seconds) == text


def test_did_you_mean() -> None:
    known = ["tops", "hops", "AUTO"]
    assert words.did_you_mean("topz", known) == " - did you mean 'tops'?"
    assert words.did_you_mean("Auto", known) == " - did you mean 'AUTO'?"  # as it is written, not as it was typed
    assert words.did_you_mean("xyz", known) == "" and words.did_you_mean("x", []) == ""
    assert words.did_you_mean("topz", known, cutoff=0.99) == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("café.csv", "café.csv"),
        ("a b", "a b"),
        ("a\x1b[31mred", "a\\x1b[31mred"),
        ("a\u202egnp.exe", "a\\u202egnp.exe"),
        ("one\ntwo\r\t\x00", "one\\ntwo\\r\\t\\x00"),
        ("\u200b\u2066\ufeff", "\\u200b\\u2066\\ufeff"),
        (3, "3"),
    ],
)
def test_control_characters_and_direction_marks_are_shown(text: object, shown: str) -> None:
    assert words.visible(text) == shown
    assert words.visible(words.visible(text)) == shown
