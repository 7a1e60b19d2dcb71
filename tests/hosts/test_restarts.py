"""Open receipts outlive restarts, copies, merges and deletions: every verb, in every order, learns them once."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibeat import Bank, Calibrator, Forecast, MultiBank, MultiCalibrator, MultiForecast, UnknownForecast

Restart = Callable[[Any, Path], Any]


def by_file(host: Any, folder: Path) -> Any:
    """A process that ends, and another that continues."""
    if isinstance(host, Calibrator):
        return type(host).from_json(host.to_json())
    host.save(folder / "b.bank")
    return type(host).load(folder / "b.bank")


def by_pickle(host: Any, _: Path) -> Any:
    return pickle.loads(pickle.dumps(host))  # noqa: S301


def by_deepcopy(host: Any, _: Path) -> Any:
    return copy.deepcopy(host)


RESTARTS: list[Restart] = [by_file, by_pickle, by_deepcopy]

# ---- banks ---------------------------------------------------------------------------------------------------------

BANKS = {
    "Bank": (lambda: Bank("ops"), Forecast, [0.3, 0.6, 0.4, 0.8]),
    "MultiBank": (lambda: MultiBank(3, "ots"), MultiForecast, [[0.3, 0.6, 0.1], [0.5, 0.3, 0.2]] * 2),
}


class Service:
    """A bank with receipts that wait, as a service has them: bytes by the order in which they were issued."""

    def __init__(self, kind: str) -> None:
        make, self.read, self.scores = BANKS[kind]
        self.make = make
        self.bank: Any = make()

    def issue(self, key: str, verb: str) -> list[bytes]:
        """Three receipts of a key."""
        if verb == "fold":
            receipts: list[bytes] = self.bank.fold([key] * 3, self.scores[:3], [nan] * 3).receipts.tolist()
            return receipts
        return [self.bank.predict(key, score).to_bytes() for score in self.scores[:3]]

    def learn(self, key: str, receipt: bytes, outcome: int, verb: str) -> None:
        """The outcome of a receipt."""
        if verb == "fold":
            nothing = nan if self.read is Forecast else [nan] * 3
            self.bank.fold([key], [nothing], [outcome], [receipt])
        else:
            assert self.bank.update(key, self.read.from_bytes(receipt), outcome) == "learnt"


def nothing(service: Service, _: list[bytes], __: list[bytes]) -> None:
    pass


def an_outcome_by_fold(service: Service, own: list[bytes], _: list[bytes]) -> None:
    service.learn("oslo", own.pop(1), 1, "fold")


def an_outcome_by_update(service: Service, own: list[bytes], _: list[bytes]) -> None:
    service.learn("oslo", own.pop(1), 1, "update")


def a_forecast_by_predict(service: Service, own: list[bytes], _: list[bytes]) -> None:
    own.append(service.bank.predict("oslo", service.scores[3]).to_bytes())


def a_forecast_by_fold(service: Service, own: list[bytes], _: list[bytes]) -> None:
    own += service.bank.fold(["oslo"], service.scores[3:], [nan]).receipts.tolist()


def a_run(service: Service, _: list[bytes], __: list[bytes]) -> None:
    service.bank.run(["oslo"], service.scores[3:], [1])


def an_outcome_of_another_key(service: Service, _: list[bytes], others: list[bytes]) -> None:
    service.learn("rome", others.pop(0), 1, "fold")


def a_deletion(service: Service, _: list[bytes], __: list[bytes]) -> None:
    if "paris" in service.bank:
        del service.bank["paris"]


def a_merge_of_nothing(service: Service, _: list[bytes], __: list[bytes]) -> None:
    service.bank.merge(service.make())


def a_merge_of_a_shard(service: Service, _: list[bytes], __: list[bytes]) -> None:
    shard = service.make()
    shard.run([f"berlin {len(service.bank)}"], service.scores[:1], [1])
    service.bank.merge(shard)


def a_merge_into_a_shard(service: Service, _: list[bytes], __: list[bytes]) -> None:
    shard = service.make()
    shard.run([f"berlin {len(service.bank)}"], service.scores[:1], [1])
    shard.merge(service.bank)
    service.bank = shard


def the_idle_dropped(service: Service, _: list[bytes], __: list[bytes]) -> None:
    service.bank.drop_idle(2**40)


def its_own_rows_put_back(service: Service, _: list[bytes], __: list[bytes]) -> None:
    service.bank.set_rows(["oslo", "rome"], service.bank.rows(["oslo", "rome"]))


Step = Callable[[Service, list[bytes], list[bytes]], None]
STEPS: list[Step] = [
    nothing,
    an_outcome_by_fold,
    an_outcome_by_update,
    a_forecast_by_predict,
    a_forecast_by_fold,
    a_run,
    an_outcome_of_another_key,
    a_deletion,
    a_merge_of_nothing,
    a_merge_of_a_shard,
    a_merge_into_a_shard,
    the_idle_dropped,
    its_own_rows_put_back,
]


def served(kind: str, issue: str, steps: list[Step], learn: str, restart: Callable[[Any], Any]) -> Any:
    """The rows of a service that restarts before each step and before the end, where all its receipts are learnt."""
    service = Service(kind)
    service.bank.run(["paris"], service.scores[:1], [0])
    service.bank = restart(service.bank)
    receipts = {key: service.issue(key, issue) for key in ("oslo", "rome")}
    for step in steps:
        service.bank = restart(service.bank)
        step(service, *receipts.values())
    service.bank = restart(service.bank)
    for key, own in receipts.items():
        for at, receipt in enumerate(own):
            service.learn(key, receipt, at % 2, learn)
        for at, receipt in enumerate(own):  # a repeat changes nothing
            assert service.bank.update(key, service.read.from_bytes(receipt), at % 2) == "repeated"
    return service.bank.rows(list(receipts)).tolist()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("learn", ["fold", "update"])
@pytest.mark.parametrize("issue", ["fold", "predict"])
@pytest.mark.parametrize("restart", RESTARTS)
@pytest.mark.parametrize("kind", BANKS)
def test_receipts_of_a_bank(kind: str, restart: Restart, issue: str, learn: str, step: Step, tmp_path: Path) -> None:
    """A bank that restarts around each verb is as one that never did; so is one that takes a step twice."""
    for steps in ([step], [step, nothing, nothing]):
        with_restarts = served(kind, issue, steps, learn, lambda bank: restart(bank, tmp_path))
        assert with_restarts == served(kind, issue, steps, learn, lambda bank: bank)


@pytest.mark.parametrize("second", STEPS)
@pytest.mark.parametrize("first", STEPS)
def test_two_steps_between_three_restarts(first: Step, second: Step, tmp_path: Path) -> None:
    for issue, learn in (("fold", "update"), ("predict", "fold")):
        restarted = served("Bank", issue, [first, second], learn, lambda bank: by_file(bank, tmp_path))
        assert restarted == served("Bank", issue, [first, second], learn, lambda bank: bank)


@pytest.mark.parametrize("kind", BANKS)
@pytest.mark.parametrize("restart", RESTARTS)
def test_receipts_of_another_copy_are_refused(restart: Restart, kind: str, tmp_path: Path) -> None:
    """What a copy issued after it was made is not taken; its own receipts are, also after another restart."""
    service = Service(kind)
    service.bank.run(["oslo"], service.scores[:1], [0])
    service.bank = restart(service.bank, tmp_path)
    open_ones = service.issue("oslo", "fold")
    other = Service(kind)
    other.bank = restart(service.bank, tmp_path)
    service.bank = restart(service.bank, tmp_path)
    foreign, own = other.issue("oslo", "fold"), service.issue("oslo", "fold")
    for verb in ("fold", "update"):
        with pytest.raises(UnknownForecast):
            service.learn("oslo", foreign[0], 1, verb)
    service.learn("oslo", open_ones.pop(), 1, "update")
    service.bank = restart(service.bank, tmp_path)
    for receipt in own + open_ones:
        service.learn("oslo", receipt, 1, "update")


# ---- one stream ----------------------------------------------------------------------------------------------------

STREAMS = {
    "Calibrator": (lambda: Calibrator("ops"), Forecast, [0.3, 0.6, 0.4, 0.8]),
    "MultiCalibrator": (lambda: MultiCalibrator(3, "ots"), MultiForecast, [[0.3, 0.6, 0.1], [0.5, 0.3, 0.2]] * 2),
}


@pytest.mark.parametrize("between", ["nothing", "update", "predict", "run"])
@pytest.mark.parametrize("restart", RESTARTS)
@pytest.mark.parametrize("kind", STREAMS)
def test_receipts_of_a_calibrator(kind: str, restart: Restart, between: str, tmp_path: Path) -> None:
    rows = []
    for renew in (lambda host: restart(host, tmp_path), lambda host: host):
        make, read, scores = STREAMS[kind]
        host: Any = make()
        host.run(scores[:1], [0])
        host = renew(host)
        receipts = [host.predict(score).to_bytes() for score in scores[:3]]
        for _ in range(2):
            host = renew(host)
            match between:
                case "update":
                    assert host.update(read.from_bytes(receipts.pop()), 1) == "learnt"
                case "predict":
                    receipts.append(host.predict(scores[3]).to_bytes())
                case "run":
                    host.run(scores[3:], [1])
        host = renew(host)
        for answer in ("learnt", "repeated"):
            assert [host.update(read.from_bytes(receipt), 1) for receipt in receipts] == [answer] * len(receipts)
        rows.append([host.events, host.outcomes, *np.ravel(host.predict_many(scores)).tolist()])
    assert rows[0] == rows[1]
