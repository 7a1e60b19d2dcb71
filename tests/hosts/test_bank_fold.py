"""`Bank.fold`: forecasts and late outcomes mixed, in one pass, with the bits of `predict` and `update`."""

from __future__ import annotations

from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from banks import IN_A_ROW, OTHERS, content
from conformance import same

from calibeat import (
    AUTO,
    HOPS,
    OPS,
    TOPS,
    Bank,
    CalibeatError,
    Forecast,
    InvalidInput,
    Method,
    Monitor,
    OutcomeConflict,
    UnknownForecast,
    UnknownKey,
)

ALL = {**IN_A_ROW, **OTHERS}


def operations(n: int, keys: int, seed: int = 0) -> list[tuple[str, float, int, int]]:
    """(key, score, -1, -1) for a forecast, (key, NaN, position of its forecast, y) for an outcome."""
    rng = np.random.default_rng(seed)
    done: list[tuple[str, float, int, int]] = []
    waiting: list[int] = []
    for i in range(n):
        if waiting and rng.random() < 0.45:
            j = waiting.pop(int(rng.integers(len(waiting))))
            done.append((done[j][0], nan, j, int(rng.random() < 0.2 + 0.5 * done[j][1])))
        else:
            waiting.append(i)
            done.append((f"k{rng.integers(keys)}", float(rng.random()), -1, -1))
    return done


def by_events(bank: Bank, todo: list[tuple[str, float, int, int]]) -> Any:
    receipts: dict[int, Any] = {}
    said = np.full(len(todo), nan)
    for i, (key, score, source, y) in enumerate(todo):
        if source < 0:
            receipts[i] = bank.predict(key, score)
            said[i] = receipts[i].probability
        else:
            bank.update(key, receipts.pop(source), y)
    return said


def by_fold(bank: Bank, todo: list[tuple[str, float, int, int]], at_once: int) -> Any:
    stored: dict[int, bytes] = {}
    said = []
    for first in range(0, len(todo), at_once):
        group = todo[first : first + at_once]
        asked = [source < 0 for _, _, source, _ in group]
        own = [source - first if source >= first else -1 for _, _, source, _ in group]
        brought = [stored.pop(source) for _, _, source, _ in group if 0 <= source < first]
        found = bank.fold(
            [key for key, _, _, _ in group],
            [score for _, score, _, _ in group],
            [nan if source < 0 else y for _, _, source, y in group],
            brought,
            of=own,
        )
        said.append(found.forecasts)
        places = [first + i for i, forecast in enumerate(asked) if forecast]
        stored |= dict(zip(places, found.receipts.tolist(), strict=True))
    return np.concatenate(said)


@pytest.mark.parametrize("method", ALL.values(), ids=ALL)
@pytest.mark.parametrize("prior", [None, "pooled"])
def test_the_bits_of_predict_and_update(method: Method, prior: str | None) -> None:
    todo = operations(240, 11)
    events = Bank(method, seed=3, prior=prior)
    expected = by_events(events, todo)
    for at_once in (1, 7, 100, 240):
        bank = Bank(method, seed=3, prior=prior)
        same(by_fold(bank, todo, at_once), expected)
        assert content(bank) == content(events)


def test_rows_travel_between_processes() -> None:
    """A worker that gets the row and the receipt of a key does what the first would have done."""
    todo = operations(200, 9)
    first, second, whole = (Bank(AUTO, seed=3, stream="cities") for _ in range(3))
    receipts = first.fold(["a", "b"], [0.3, 0.6], [nan, nan]).receipts.tolist()
    assert whole.fold(["a", "b"], [0.3, 0.6], [nan, nan]).receipts.tolist() == receipts
    state = [row.tobytes() for row in first.rows(["b", "a"])]
    second.set_rows(["b", "a"], np.frombuffer(b"".join(state)).reshape(2, -1))
    second.fold(["b", "a"], [nan, nan], [1, 0], receipts[::-1])
    whole.fold(["b", "a"], [nan, nan], [1, 0], receipts[::-1])
    same(second.rows(["a", "b"]), whole.rows(["a", "b"]))
    same(by_fold(second, todo, 50), by_fold(whole, todo, 50))


def test_a_receipt_is_a_record() -> None:
    for method, size in ((TOPS, 112), (AUTO, 112 + 8 * AUTO.receipt_width)):
        bank = Bank(method, seed=2)
        bank.run(["a"] * 3, [0.2, 0.4, 0.6], [1, 0, 1])
        found = bank.fold(["a", "b", "a"], [0.3, 0.5, 0.7], [nan, nan, nan])
        assert bank.receipt_type.itemsize == size and found.receipts.dtype == f"V{size}"
        assert all(type(receipt) is bytes and len(receipt) == size for receipt in found.receipts.tolist())
        records = found.receipts.view(bank.receipt_type)
        assert records["version"].tolist() == [2, 2, 2] and records["event"].tolist() == [3, 0, 4]
        assert records["seen"].tolist() == [3, 0, 3] and records["score"].tolist() == [0.3, 0.5, 0.7]
        same(np.ascontiguousarray(records["probability"]), found.forecasts)
        forecast = bank.predict("b", 0.1)
        assert f"{records['issuer'][1]:016x}-{records['generation'][1]:08x}" == forecast.issuer
        read = Forecast.from_bytes(found.receipts.tolist()[1])
        assert read.to_bytes() == found.receipts.tolist()[1] and read.event == 0
        # An array is taken as well as a list of bytes.
        bank.fold(["a", "b"], [nan, nan], [1, 1], found.receipts[:2])
        assert bank["a"].outcomes == 4


@pytest.mark.parametrize("method", [TOPS, HOPS, AUTO], ids=["tops", "hops", "auto"])
@pytest.mark.parametrize("restart", [False, True])
def test_receipts_of_fold_and_of_predict_are_the_same(method: Method, restart: bool, tmp_path: Path) -> None:
    """What was issued by one may come back to the other; what is known to be learnt is not learnt again."""
    todo = [("a", 0.3), ("b", 0.4), ("a", 0.6), ("c", 0.2)]
    single, mixed = Bank(method, seed=5), Bank(method, seed=5)
    for bank in (single, mixed):
        bank.run(["a", "b"] * 10, np.linspace(0.1, 0.9, 20), np.arange(20) % 3 == 0)
    if restart:
        for name, bank in (("single", single), ("mixed", mixed)):
            bank.save(tmp_path / name)
        single, mixed = Bank.load(tmp_path / "single"), Bank.load(tmp_path / "mixed")
    receipts = [single.predict(key, score) for key, score in todo]
    held = mixed.predict(*todo[0])
    made = mixed.fold([key for key, _ in todo[1:]], [score for _, score in todo[1:]], [nan] * 3).receipts.tolist()
    issuer = {"issuer": "0" * 16}  # each signs with a number of its own
    for brought, receipt in zip(map(Forecast.from_bytes, made), receipts[1:], strict=True):
        assert brought.__replace__(**issuer) == receipt.__replace__(**issuer)
    for (key, _), receipt, y in zip(todo[::-1], receipts[::-1], (1, 0, 1, 0), strict=True):
        single.update(key, receipt, y)
    mixed.update("c", Forecast.from_bytes(made[2]), 1)
    mixed.update("a", Forecast.from_bytes(made[1]), 0)
    mixed.fold(["b", "a"], [nan, nan], [1, 0], [made[0], held.to_bytes()])
    assert content(mixed) == content(single)
    for key, receipt in (("a", made[1]), ("a", held.to_bytes()), ("c", made[2])):
        for y in (0, 1):
            with pytest.raises(OutcomeConflict, match="receipt must be brought once, got one whose outcome is learnt"):
                mixed.fold([key], [nan], [y], [receipt])
    for receipt in (held, Forecast.from_bytes(made[1])):
        assert mixed.update("a", receipt, 0) == "repeated"
        with pytest.raises(OutcomeConflict, match="already learnt, 0, got 1"):
            mixed.update("a", receipt, 1)
    assert content(mixed) == content(single)


def damaged(receipt: bytes, bank: Bank, field: str, value: Any) -> bytes:
    record = np.frombuffer(receipt, dtype=bank.receipt_type).copy()
    record[field] = value
    return record.tobytes()


@pytest.mark.parametrize("method", [TOPS, AUTO, OPS], ids=["tops", "auto", "ops"])
def test_whatever_is_wrong_is_named_and_nothing_is_taken(method: Method) -> None:
    bank, alike = (Bank(method, seed=2, stream="cities", prior="pooled") for _ in range(2))
    for each in (bank, alike):
        each.run(["a", "b"] * 3, [0.2, 0.4, 0.6, 0.1, 0.7, 0.3], [1, 0, 1, 0, 0, 1])
    a, b = bank.fold(["a", "b"], [0.3, 0.5], [nan, nan]).receipts.tolist()
    before = content(bank, receipts=True)
    foreign = Bank(method, seed=9).fold(["a"], [0.3], [nan]).receipts.tolist()[0]
    later = alike.fold(["a", "a"], [0.3, 0.3], [nan, nan]).receipts.tolist()[1]
    cases: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
        ((["n", "c"], [0.5, nan], [nan, 1], [a]), {}, UnknownKey, "before an outcome, got a new key - at row 1"),
        ((["a"], [nan], [1], [b]), {}, UnknownForecast, "of this bank and this key, got another's - at row 0"),
        ((["a"], [nan], [1], [foreign]), {}, UnknownForecast, "of this bank and this key"),
        ((["a"], [nan], [1], []), {}, InvalidInput, "one for each outcome of an earlier call, 1, got 0"),
        ((["a"], [0.5], [nan], [a]), {}, InvalidInput, "one for each outcome of an earlier call, 0, got 1"),
        ((["a"], [nan], [1], [a[:-1]]), {}, InvalidInput, "receipt must be .* bytes, got .* - at receipt 0"),
        ((["a"], [nan], [1], ["text"]), {}, InvalidInput, "receipt must be .* bytes, got 'text'"),
        ((["a"], [nan], [1], "text"), {}, InvalidInput, "list of bytes, got str"),
        ((["a"], [nan], [1], np.zeros(1)), {}, InvalidInput, "bytes each, got an array of float64"),
        ((["a"], [nan], [2], [a]), {}, InvalidInput, "outcome must be 0 or 1"),
        ((["a"], [1.5], [nan]), {}, InvalidInput, r"score must be in \[0, 1\]"),
        ((["a"], [nan], [nan]), {}, InvalidInput, "score must be in"),
        ((["a", "b"], [0.5], [nan, nan]), {}, InvalidInput, "same length"),
        ((["a", "a"], [0.5, nan], [nan, 1]), {"of": [-1, 1]}, InvalidInput, "earlier forecast or -1, got 1 - at row 1"),
        ((["a", "b"], [0.5, nan], [nan, 1]), {"of": [-1, 0]}, UnknownForecast, "of its own key"),
        ((["a", "a"], [0.5, nan], [nan, 1]), {"of": [-1]}, InvalidInput, "same length"),
        ((["a", "b", "a"], [nan] * 3, [1, 1, 1], [a, b, a]), {}, OutcomeConflict, "brought once, .* at row 2"),
        ((["a", "a"], [nan] * 2, [1, 0], [a, a]), {}, OutcomeConflict, "brought once, .* at row 1"),
        ((["a"], [nan], [1], [damaged(a, bank, "version", 1)]), {}, InvalidInput, "of this version and this method"),
        ((["a"], [nan], [1], [damaged(a, bank, "numbers", 77)]), {}, InvalidInput, "of this version and this method"),
        ((["a"], [nan], [1], [later]), {}, UnknownForecast, "of a forecast that was made, got a later one - at row 0"),
    ]
    fields = {
        "event": 1,
        "seen": 4,
        "score": 0.4,
        "probability": 0.4,
        "expert": 0.4,
        "bin": 7,
        "seal": 9,
        "hedge": 1e-9,
    }
    if bank.receipt_type["lanes"].itemsize:
        fields["lanes"] = 0.3
    for field, value in fields.items():
        arguments = ["n", "b", "a"], [0.5, nan, nan], [nan, 1, 1], [b, damaged(a, bank, field, value)]
        cases.append((arguments, {}, InvalidInput, "as it was issued, got a damaged one - at row 2"))
    for arguments, named, error, message in cases:
        with pytest.raises(error, match=message):
            bank.fold(*arguments, **named)
        assert content(bank, receipts=True) == before, message
    assert bank.fold(["a"], [nan], [1], [a]).receipts.tolist() == []


def test_rows_in_are_checked() -> None:
    bank = Bank(TOPS)
    bank.run([1, 2], [0.5, 0.4], [1, 0])
    rows = bank.rows([2, 1])
    assert rows.shape == (2, TOPS.width + 6) and not np.shares_memory(rows, bank._rows.matrix)
    before = content(bank)
    bad = rows.copy()
    bad[1, 5] = nan
    odd = rows.copy()
    odd[0, TOPS.width - 2] = 3.0
    for keys, what, error, message in (
        ([2, 1], bad, InvalidInput, "A in .*, got nan - at row 1"),
        ([2, 1], odd, InvalidInput, "a sum of outcomes in"),
        ([2, 2], rows, InvalidInput, "different, got one of them twice"),
        ([2], rows, InvalidInput, r"shape \(1, 33\), got float64 of shape \(2, 33\)"),
        ([2, 1], rows.astype(np.float32), InvalidInput, "float32"),
        (["a", "b"], rows, InvalidInput, "ints like those of the bank"),
    ):
        with pytest.raises(error, match=message):
            bank.set_rows(keys, what)
        assert content(bank) == before
    with pytest.raises(UnknownKey, match="one of the 2 keys of the bank - at row 1"):
        bank.rows([2, 77])
    bank.set_rows([2, 9], rows)
    same(bank.rows([9, 2])[:, :-5], rows[::-1, :-5])


def test_the_pool_travels_too() -> None:
    bank, other = Bank(TOPS, prior="pooled"), Bank(TOPS, prior="pooled")
    bank.run([1, 2], [0.5, 0.4], [1, 0])
    other.pool = bank.pool
    other.set_rows([1, 2], bank.rows([1, 2]))
    assert content(bank) == content(other)
    same(bank.predict_many([3], [0.3]), other.predict_many([3], [0.3]))
    for wrong, message in (
        ([1.0], "27 numbers, got shape"),
        (np.full(27, nan), "got nan"),
        (np.full(27, -1.0), "row must"),
    ):
        with pytest.raises(InvalidInput, match=message):
            other.pool = wrong


# ---- whose receipt it is -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", [False, True], ids=["fold alone", "single events too"])
def test_receipts_that_were_issued_after_the_snapshot_are_refused(record: bool, tmp_path: Path) -> None:
    """As `update` refuses them: the new process may have given the number to another event."""
    crashed = Bank(OPS)
    if record:
        held = crashed.predict("a", 0.2)
    before = crashed.fold(["a", "b"], [0.3, 0.6], [nan, nan]).receipts.tolist()
    crashed.save(tmp_path / "bank")
    after = crashed.fold(["a", "b", "new"], [0.9, 0.9, 0.9], [nan] * 3).receipts.tolist()
    bank = Bank.load(tmp_path / "bank")
    mine = bank.fold(["a", "b", "new"], [0.1, 0.1, 0.1], [nan] * 3).receipts.tolist()
    state = content(bank)
    for key, receipt in zip(["a", "b", "new"], after, strict=True):
        with pytest.raises(UnknownForecast, match="after the snapshot from which it continues - at row 2"):
            bank.fold(["a", "c", key], [nan, 0.5, nan], [1, nan, 1], [before[0], receipt])
        with pytest.raises(UnknownForecast, match="after the snapshot from which it continues - at event"):
            bank.update(key, Forecast.from_bytes(receipt), 1)
    assert content(bank) == state
    bank.fold(["b", "a", "a", "b", "new"], [nan] * 5, [1, 0, 1, 0, 1], [*before[::-1], *mine])
    if record:
        bank.update("a", held, 1)
    assert bank.events == bank.table["outcomes"].sum() == 5 + record


def test_receipts_of_fold_are_good_when_other_keys_have_gone() -> None:
    """A key that is forgotten begins a new generation when it comes again; those of the others go on."""
    bank = Bank(OPS)
    single = bank.predict("d", 0.2)
    first = bank.fold(["a", "b", "c", "d"], [0.3, 0.4, 0.5, 0.6], [nan] * 4).receipts.tolist()
    del bank["b"]
    second = bank.fold(["a", "b", "d"], [0.3, 0.4, 0.6], [nan] * 3).receipts.tolist()
    for take in (lambda: bank.fold(["b"], [nan], [1], [first[1]]), lambda: update(bank, "b", first[1])):
        with pytest.raises(UnknownForecast):
            take()
    update(bank, "a", first[0])
    update(bank, "d", second[2])
    bank.fold(["c", "d", "a", "b"], [nan] * 4, [1] * 4, [first[2], first[3], second[0], second[1]])
    bank.update("d", single, 1)
    assert bank.events == bank.table["outcomes"].sum() == 7


def test_rows_that_travel_bring_the_receipts_that_they_count() -> None:
    """Whatever generation has issued them: a service that starts again has only what its store has."""
    first, second = Bank(OPS), Bank(OPS)
    first.fold(["gone"], [0.5], [nan])
    del first["gone"]
    receipts = first.fold(["a", "b"], [0.3, 0.4], [nan, nan]).receipts.tolist()
    second.set_rows(["a", "b"], first.rows(["a", "b"]))
    later = first.fold(["a"], [0.3], [nan]).receipts.tolist()
    own = second.fold(["a"], [0.9], [nan]).receipts.tolist()
    with pytest.raises(UnknownForecast, match="a copy of it has made"):
        second.fold(["a"], [nan], [1], later)
    second.fold(["a", "a"], [nan, nan], [1, 1], [receipts[0], own[0]])
    update(second, "b", receipts[1])
    assert second.events == second.table["outcomes"].sum() == 3


@pytest.mark.parametrize("known", [False, True])
def test_an_outcome_of_a_row_that_travelled_is_learnt_also_alone(known: bool) -> None:
    first, second = Bank(OPS), Bank(OPS)
    if known:  # the key is here, and what the bank knew of its receipts is about another row
        second.update("a", second.predict("a", 0.3), 1)
    receipt = first.fold(["a", "b"], [0.3, 0.4], [nan, nan]).receipts.tolist()[0]
    first.predict("a", 0.6)
    second.set_rows(["a"], first.rows(["a"]))
    update(second, "a", receipt)
    assert second.table["outcomes"].tolist() == [1]
    update(second, "a", receipt)
    assert second.table["outcomes"].tolist() == [1]


@pytest.mark.parametrize("method", ["ops", "tops", "hops", "auto"])
@pytest.mark.parametrize("monitored", [False, True])
def test_one_operation_alone_is_one_of_many(method: str, monitored: bool) -> None:
    """A fold of one operation goes another way: the same bits, receipts and refusals."""
    alone, together = (Bank(method, stream="", monitor=Monitor(warm=0) if monitored else None) for _ in range(2))
    scores, kept = np.random.default_rng(5).random(40).tolist(), []
    for bank in (alone, together):
        bank.fold(["a", "b"], [0.2, 0.7], [nan, nan])
    for i, score in enumerate(scores):
        one = alone.fold(["a"], [score], [nan])
        many = together.fold(np.array(["a"], dtype=object), [score], [nan])
        assert one.forecasts.tobytes() == many.forecasts.tobytes()
        assert one.receipts.tobytes() == many.receipts.tobytes()
        kept.append(one.receipts.tolist()[0])
        if i % 3 == 2:
            receipt = kept.pop(0)
            assert np.isnan(alone.fold(["a"], [nan], [i % 2], [receipt]).forecasts).all()
            together.fold(np.array(["a"], dtype=object), [nan], [i % 2], [receipt])
            with pytest.raises(OutcomeConflict):
                alone.fold(["a"], [nan], [i % 2], [receipt])
    assert alone.rows(["a", "b"]).tobytes() == together.rows(["a", "b"]).tobytes()
    if monitored:
        both = [{name: repr(column.tolist()) for name, column in bank.table.items()} for bank in (alone, together)]
        assert both[0] == both[1]
    for bad in (kept[0][:-1], bytes(len(kept[0])), kept[0][:40] + b"another " + kept[0][48:]):
        errors = []
        for bank, keys in ((alone, ["a"]), (together, np.array(["a"], dtype=object))):
            with pytest.raises(CalibeatError) as error:
                bank.fold(keys, [nan], [1], [bad])
            errors.append((type(error.value), str(error.value)))
        assert errors[0] == errors[1]
    for score in (1.5, -0.1, nan, "x", None):
        with pytest.raises(InvalidInput, match="score"):
            alone.fold(["a"], [score], [nan])


def update(bank: Bank, key: str, receipt: bytes) -> None:
    bank.update(key, Forecast.from_bytes(receipt), 1)


def test_lists_of_any_numbers_and_any_sequence_of_receipts_are_read_alike() -> None:
    keys, scores, outcomes = ["oslo", "rome", "oslo"], [0.5, 1, 0.25], [nan] * 3
    plain, other = Bank("auto"), Bank("auto")
    made = plain.fold(keys, scores, outcomes)
    assert made.forecasts.tolist() == other.fold(keys, np.array(scores), np.array(outcomes)).forecasts.tolist()
    typed = [np.float64(score) for score in scores]
    assert made.forecasts.tolist() == Bank("auto").fold(keys, typed, outcomes).forecasts.tolist()
    asked = [nan] * 3
    receipts = made.receipts.tolist()
    with pytest.raises(InvalidInput, match=r"receipt must be .* bytes, got .* - at receipt 2"):
        plain.fold(keys, asked, [1, 0, 1], [*receipts[:2], receipts[2][:-1]])
    with pytest.raises(InvalidInput, match="at row 1"):
        plain.fold(keys, asked, [1, "0", 1], receipts)
    plain.fold(keys[:2], asked[:2], [True, 0], tuple(receipts[:2]))
    plain.fold(keys[2:], asked[2:], [1.0], [bytearray(receipts[2])])
    assert plain["oslo"].outcomes == 2 and plain["rome"].outcomes == 1
