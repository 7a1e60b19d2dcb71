"""Files that version 0.1 wrote are read, and their streams go on with the forecasts that 0.1 would have made."""

from __future__ import annotations

import json
from pathlib import Path

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
    for receipt, outcome in zip(receipts, AFTER, strict=False):
        cal.update(receipt, outcome)
    assert [float(p).hex() for p in cal.run(LATER, AFTER)] == EXPECTED["streams"][name]


@pytest.mark.parametrize("name", EXPECTED["banks"])
def test_banks(name: str) -> None:
    bank = Bank.load(FOLDER / f"{name}.bank")
    expected = EXPECTED["banks"][name]
    forecasts = bank.run(np.array(expected["keys"]), LATER, AFTER)
    assert [float(p).hex() for p in forecasts] == expected["forecasts"]
