"""`Bank.fold`: forecasts and late outcomes mixed, in one pass, with the bits of `predict` and `update`.

Monitors watch meanwhile: they give up on outcomes that come late, by every verb alike.
"""

from __future__ import annotations

import copy
import pickle
from functools import partial
from math import isnan, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from banks import IN_A_ROW, KINDS, Kind, content, kinds
from conformance import same

from calibeat import (
    AUTO,
    OPS,
    TOPS,
    Bank,
    Calibrator,
    Forecast,
    InvalidInput,
    Method,
    Monitor,
    MultiBank,
    MultiCalibrator,
    MultiForecast,
    OutcomeConflict,
    UnknownForecast,
    UnknownKey,
)
from calibeat.core.layout import THETA
from calibeat.core.stats import LAST, STATS
from calibeat.hosts.rows import fold_on_rows, new_rows, receipt_type

# ---- predict and update, in columns --------------------------------------------------------------------------------

N = 120
WATCHED = KINDS | {
    name: Kind(partial(Bank, name), partial(Calibrator, name, stream="a"), Forecast) for name in ("tops", "auto")
}
WATCHED |= {
    f"{K} classes": Kind(partial(MultiBank, K), partial(MultiCalibrator, K), MultiForecast, K) for K in (2, 3, 70)
}
Operation = tuple[str, int, int | None]  # a key, the event, and its outcome, or None where it is asked for


def template(patience: int) -> Monitor:
    return Monitor(arl=200, warm=5, quiet=20, patience=patience)


def operations(rng: Any, patience: int) -> list[Operation]:
    """Forecasts of two keys, and outcomes: some soon, some too late, some never, in any order."""
    found: list[tuple[float, Operation]] = []
    for event in range(N):
        key = "ab"[int(rng.integers(2))]
        found.append((event, (key, event, None)))
        late = rng.choice([0.5, 2.5, 2.0 * patience, 5.0 * patience, np.inf])
        if late < np.inf:
            found.append((event + late, (key, event, int(rng.integers(2)))))
    return [operation for _, operation in sorted(found, key=lambda pair: pair[0])]


def scores_of(kind: Kind, rng: Any) -> Any:
    return rng.dirichlet([1.0] * kind.classes, N).tolist() if kind.classes else rng.random(N).round(3).tolist()


def by_single_events(host: Any, scores: Any, todo: list[Operation]) -> None:
    receipts = {}
    for key, event, outcome in todo:
        names = [] if isinstance(host, Calibrator) else [key]
        if outcome is None:
            receipts[event] = host.predict(*names, scores[event])
        else:
            host.update(*names, receipts[event], outcome)


def by_fold(bank: Any, scores: Any, todo: list[Operation], rng: Any) -> None:
    """In calls of any length; outcomes of forecasts of the same call come with `of`, others with receipts."""
    receipts: dict[int, bytes] = {}
    nothing = nan if isinstance(scores[0], float) else [nan] * len(scores[0])
    while todo:
        n = int(rng.integers(1, 30))
        part, todo = todo[:n], todo[n:]
        here = {event: at for at, (_, event, outcome) in enumerate(part) if outcome is None}
        asked = [outcome is None for _, _, outcome in part]
        folded = bank.fold(
            [key for key, _, _ in part],
            [scores[event] if ask else nothing for ask, (_, event, _) in zip(asked, part, strict=True)],
            [nan if outcome is None else float(outcome) for _, _, outcome in part],
            [receipts[event] for _, event, outcome in part if outcome is not None and event not in here],
            of=[-1 if outcome is None else here.get(event, -1) for _, event, outcome in part],
        )
        receipts |= zip(here, folded.receipts.tolist(), strict=True)


@pytest.mark.parametrize("patience", [1, 7])
@pytest.mark.parametrize("name", WATCHED)
def test_fold_is_single_events(name: str, patience: int, tmp_path: Path) -> None:
    """Of a bank and of a calibrator for each key, with monitors that give up alike; it can be saved afterwards."""
    kind = WATCHED[name]
    for seed in range(5):
        rng = np.random.default_rng(seed)
        scores, todo = scores_of(kind, rng), operations(rng, patience)
        single, folded = (kind.bank(monitor=template(patience)) for _ in range(2))
        by_single_events(single, scores, todo)
        by_fold(folded, scores, todo, rng)
        folded.save(tmp_path / "b.bank")
        copies = [type(folded).load(tmp_path / "b.bank"), copy.deepcopy(folded), pickle.loads(pickle.dumps(folded))]  # noqa: S301
        for key in "ab":
            cal = kind.alone(monitor=template(patience))
            by_single_events(cal, scores, [operation for operation in todo if operation[0] == key])
            assert cal.monitor.waiting.given_up > 0
            for each in (single, folded, *copies):
                same(each[key].row, cal.row)
                same_monitors(each[key].monitor, cal.monitor)


def same_monitors(ours: Any, alone: Any) -> None:
    same(ours.row, alone.row)
    told, expected = ours.waiting, alone.waiting
    for name in expected._fields:
        if name != "too_late":  # a bank does not count those
            mine, own = getattr(told, name), getattr(expected, name)
            assert mine == own or (isnan(mine) and isnan(own)), name


@kinds
@pytest.mark.parametrize("verb", ["single", "fold", "run"])
def test_a_bank_does_not_claim_that_nothing_came_too_late(verb: str, kind: Kind) -> None:
    """The counts of a key's monitor name what a bank keeps; what it does not keep is None, and never a wrong 0."""
    bank, cal = kind.bank(monitor=template(2)), kind.alone(monitor=template(2))
    scores = scores_of(kind, np.random.default_rng(0))[:5]
    match verb:
        case "run":
            for host, keys in ((bank, [["a"] * 5]), (cal, [])):
                host.run(*keys, scores, [1] * 5, due=[4, 2, 3, 4, 5], finish=True)
        case "single":
            for host, key in ((bank, ["a"]), (cal, [])):
                receipts = [host.predict(*key, score) for score in scores]
                host.update(*key, receipts[0], 1)
        case "fold":
            receipts = bank.fold(["a"] * 5, scores, [nan] * 5).receipts.tolist()
            bank.update("a", kind.receipts.from_bytes(receipts[0]), 1)
            receipts = [cal.predict(score) for score in scores]
            cal.update(receipts[0], 1)
    assert cal.monitor.waiting.too_late == 1
    assert bank["a"].monitor.waiting.too_late is None
    monitor = copy.deepcopy(bank["a"].monitor)  # it goes on as it is, also as text
    assert Monitor.from_json(monitor.to_json()).waiting.too_late is None
    assert bank["a"].monitor.waiting.given_up == cal.monitor.waiting.given_up


# ---- receipts --------------------------------------------------------------------------------------------------------


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


def test_rows_travel_between_processes_and_bring_the_receipts_that_they_count() -> None:
    """Whatever generation has issued them: a service that starts again has only what its store has."""
    first, second = Bank(AUTO), Bank(AUTO)
    first.fold(["gone"], [0.5], [nan])
    del first["gone"]
    receipts = first.fold(["a", "b"], [0.3, 0.4], [nan, nan]).receipts.tolist()
    second.update("b", second.predict("b", 0.3), 1)  # what it knew of this key is about another row
    state = [row.tobytes() for row in first.rows(["b", "a"])]
    second.set_rows(["b", "a"], np.frombuffer(b"".join(state)).reshape(2, -1))
    later = first.fold(["a"], [0.3], [nan]).receipts.tolist()
    own = second.fold(["a"], [0.9], [nan]).receipts.tolist()
    with pytest.raises(UnknownForecast, match="a copy of it has made"):
        second.fold(["a"], [nan], [1], later)
    second.fold(["a", "a"], [nan, nan], [1, 1], [receipts[0], own[0]])
    for status in ("learnt", "repeated"):
        assert second.update("b", Forecast.from_bytes(receipts[1]), 1) == status
    assert dict(zip(second, second.table["outcomes"].tolist(), strict=True)) == {"b": 1, "a": 2}


def test_receipts_that_were_issued_after_the_snapshot_are_refused(tmp_path: Path) -> None:
    """As `update` refuses them: the new process may have given the number to another event."""
    crashed = Bank(OPS)
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
    assert bank.events == bank.table["outcomes"].sum() == 5


# ---- refusals ------------------------------------------------------------------------------------------------------


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


def test_damaged_receipts_of_many_classes() -> None:
    bank = MultiBank(3)
    receipt = bank.fold(["a"], [[0.2, 0.3, 0.5]], [None]).receipts.tolist()[0]
    blank = [[np.nan] * 3]
    for at, value in ((0, 9), (1, 2), (2, 1), (8 * 13 + 7, 0x7F), (-1, 0xFF), (-25, 0x41)):
        damaged = bytearray(receipt)
        damaged[at] = value
        with pytest.raises(InvalidInput, match="receipt must be"):
            bank.fold(["a"], blank, [1], [bytes(damaged)])
    with pytest.raises(InvalidInput, match="receipt must be 504 bytes"):
        bank.fold(["a"], blank, [1], [receipt[:-1]])
    assert bank.table["outcomes"].tolist() == [0]


def test_rows_in_are_checked() -> None:
    bank = Bank(TOPS)
    bank.run([1, 2], [0.5, 0.4], [1, 0])
    rows = bank.rows([2, 1])
    assert rows.shape == (2, TOPS.width + STATS) and not np.shares_memory(rows, bank._rows.matrix)
    before = content(bank)
    bad = rows.copy()
    bad[1, THETA + 3] = nan
    odd = rows.copy()
    odd[0, TOPS.width - 2] = 3.0
    for keys, what, error, message in (
        ([2, 1], bad, InvalidInput, "A in .*, got nan - at row 1"),
        ([2, 1], odd, InvalidInput, "a sum of outcomes in"),
        ([2, 2], rows, InvalidInput, "different, got one of them twice"),
        ([2], rows, InvalidInput, r"shape \(1, 41\), got float64 of shape \(2, 41\)"),
        ([2, 1], rows.astype(np.float32), InvalidInput, "float32"),
        (["a", "b"], rows, InvalidInput, "ints like those of the bank"),
    ):
        with pytest.raises(error, match=message):
            bank.set_rows(keys, what)
        assert content(bank) == before
    with pytest.raises(UnknownKey, match="one of the 2 keys of the bank - at row 1"):
        bank.rows([2, 77])
    bank.set_rows([2, 9], rows)
    same(bank.rows([9, 2])[:, : LAST - STATS], rows[::-1, : LAST - STATS])


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


def test_one_score_alone_is_checked() -> None:
    bank = Bank(OPS)
    bank.fold(["a"], [0.5], [nan])
    for score in (1.5, -0.1, nan, "x", None):
        with pytest.raises(InvalidInput, match="score"):
            bank.fold(["a"], [score], [nan])


# ---- rows alone ----------------------------------------------------------------------------------------------------


# Where a method draws, the host of the rows does: see tests/spark/test_bucket.py.
@pytest.mark.parametrize("name", [name for name, method in IN_A_ROW.items() if not method.draws])
def test_the_bits_of_a_bank(name: str) -> None:
    method, rng = IN_A_ROW[name], np.random.default_rng(0)
    bank, rows = Bank(method), new_rows(method, 3)
    brought: Any = np.empty(0, dtype=np.void)
    waiting: list[int] = []  # the keys of receipts that were issued in the call before
    for call in range(4):
        asked = [int(k) for k in rng.integers(0, 3, 40)] if call else [0, 1, 2, 0, 1, 2]
        slots = np.array([*waiting, *asked], dtype=np.int32)
        scores = np.concatenate([np.full(len(waiting), nan), rng.random(len(asked))])
        outcomes = np.concatenate([rng.integers(0, 2, len(waiting)).astype(float), np.full(len(asked), nan)])
        wanted = bank.fold(slots.tolist(), scores, outcomes, brought if waiting else ())
        own = np.full(len(slots), -1)
        got = fold_on_rows(method, rows, slots, scores, outcomes, own, brought if waiting else (), np.empty(0))
        assert np.array_equal(got.forecasts, wanted.forecasts, equal_nan=True)
        brought, waiting = wanted.receipts, asked  # those of a bank are taken as well
    own_rows = bank.rows([0, 1, 2])
    own_rows[:, method.width + LAST] = 0.0
    assert np.array_equal(rows, own_rows)


@pytest.mark.parametrize("cell", [-1, 10**6])
def test_receipts_that_would_write_behind_a_row_are_refused(cell: int) -> None:
    method, rows = Bank("tops").method, new_rows(Bank("tops").method, 1)
    slots, none = np.zeros(1, dtype=np.int32), np.full(1, -1)
    made = fold_on_rows(method, rows, slots, np.array([0.4]), np.array([nan]), none, (), np.empty(0)).receipts
    damaged = made.copy().view(receipt_type(method))
    damaged["cell"] = cell
    with pytest.raises(InvalidInput, match="receipt must be as it was issued, got a damaged one"):
        fold_on_rows(method, rows, slots, np.array([nan]), np.array([1.0]), none, damaged, np.empty(0))
    with pytest.raises(InvalidInput, match="receipt must be"):
        fold_on_rows(method, rows, slots, np.array([nan]), np.array([1.0]), none, [b"short"], np.empty(0))
