"""Files that version 0.1 wrote are read, and their streams go on with the forecasts that 0.1 would have made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import auto_oracle
import numpy as np
import pytest

from calibeat import Bank, Calibrator, Forecast

FOLDER = Path(__file__).parent / "fixtures" / "v0.1"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
LATER, AFTER = EXPECTED["later"], EXPECTED["after"]


def test_every_file_is_expected() -> None:
    assert {path.name.split(".")[0] for path in FOLDER.glob("*.snapshot.json")} == set(EXPECTED["streams"])
    assert {path.name.split(".")[0] for path in FOLDER.glob("*.receipts.json")} == set(EXPECTED["streams"])
    assert {path.stem for path in FOLDER.glob("*.bank")} == set(EXPECTED["banks"])


@pytest.mark.parametrize("name", EXPECTED["streams"])
def test_snapshots_and_receipts(name: str) -> None:
    cal = Calibrator.from_json((FOLDER / f"{name}.snapshot.json").read_text())
    receipts = [Forecast.from_json(text) for text in json.loads((FOLDER / f"{name}.receipts.json").read_text())]
    there = auto_oracle.as_reference(cal.row) if name == "auto" else None
    for receipt, outcome in zip(receipts, AFTER, strict=False):
        cal.update(receipt, outcome)
    forecasts = cal.run(LATER, AFTER)
    if there is None:
        assert [float(p).hex() for p in forecasts] == EXPECTED["streams"][name]
    else:
        np.testing.assert_allclose(forecasts, by_the_reference(there, receipts), rtol=0, atol=1e-12)


def by_the_reference(row: np.ndarray[Any, Any], receipts: list[Forecast]) -> list[float]:
    """AUTO learns late outcomes otherwise than 0.1 did: the reference says how, also from a row and receipts of 0.1."""
    for receipt, outcome in zip(receipts, AFTER, strict=False):
        seen, score, *issued = receipt.lanes
        auto_oracle.update(row, np.array([seen, auto_oracle.clip(score, 1e-5, 1 - 1e-5), *issued]), float(outcome))
    forecasts = []
    for score, outcome in zip(LATER, AFTER, strict=True):
        q = auto_oracle.predict(row, score)
        auto_oracle.update(row, q, float(outcome))
        forecasts.append(q[auto_oracle.R_P])
    return forecasts


@pytest.mark.parametrize("name", EXPECTED["banks"])
def test_banks(name: str) -> None:
    bank = Bank.load(FOLDER / f"{name}.bank")
    expected = EXPECTED["banks"][name]
    forecasts = bank.run(np.array(expected["keys"]), LATER, AFTER)
    assert [float(p).hex() for p in forecasts] == expected["forecasts"]
