"""What the tests of the bank share."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import multi_streams
import numpy as np
import pytest

from calibeat import (
    AIOLI,
    OGD,
    ONS,
    OPS,
    TOBS,
    TOPS,
    Bank,
    Calibrator,
    Forecast,
    Method,
    MultiBank,
    MultiCalibrator,
    MultiForecast,
    Temperature,
)
from calibeat.core.method import PRESETS
from calibeat.core.randomness import mix_word
from calibeat.hosts.bankfile import FORMAT, header_of, sections_of

IN_A_ROW = {name: method for name, method in PRESETS.items() if not method.needs_history}
OTHERS = {
    "aioli": replace(OPS, learner=AIOLI()),
    "ogd": replace(OPS, learner=OGD()),
    "temperature": Method(Temperature(), ONS()),
    "temperature aioli": Method(Temperature(), AIOLI()),
    "beta aioli": replace(TOBS, learner=AIOLI()),
}


@dataclass(frozen=True)
class Kind:
    """A bank, what a key of it is alone, and their receipts."""

    bank: Callable[..., Any]
    alone: Callable[..., Any]
    receipts: Any
    classes: int = 0  # 0: a score is one number

    def events(self, n: int, keys: int, seed: int = 0) -> tuple[Any, Any, Any]:
        """Keys, scores and outcomes."""
        names, scores, outcomes = events(n, keys, seed)
        if not self.classes:
            return names, scores, outcomes.astype(int)
        return names, *multi_streams.drifting(n, self.classes)

    @property
    def score(self) -> Any:
        """Of one event."""
        return [0.2, 0.5, 0.3] if self.classes else 0.4


KINDS = {
    "two classes": Kind(partial(Bank, "ops"), partial(Calibrator, "ops"), Forecast),
    "three classes": Kind(partial(MultiBank, 3, "ots"), partial(MultiCalibrator, 3, "ots"), MultiForecast, 3),
}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)  # a rule of two classes and of many


def events(n: int, keys: int, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    scores = rng.random(n)
    return rng.integers(0, keys, n), scores, (rng.random(n) < 0.2 + 0.5 * scores).astype(float)


def as_strings(keys: Any) -> list[str]:
    return [f"käse {key}" if key % 3 else f"k{key}" for key in keys]


def bytes_of(bank: Bank, folder: Path) -> bytes:
    """All that a file of the bank holds, but for the seed of its hash table, which is another for every bank."""
    bank.save(folder / "b")
    return content(bank)


def content(bank: Bank, *, receipts: bool = False) -> bytes:
    """The rows, the keys and the settings; on request also which receipts wait for their outcome."""
    len(bank)  # finishes what an interrupt has left
    header, sections = header_of(bank), sections_of(bank)
    if not receipts:
        for name in ("ledgers", "settled", "uncertain"):
            sections.pop(name, None)
    del header["hash_seed"]
    sections.pop("table", None)
    if "marks" in sections:
        sections["marks"] = sections["marks"] >> np.array([0, 31] * len(bank))
    return json.dumps(header).encode() + b"".join(array.tobytes() for array in sections.values())


def filled(method: Method = TOPS, *, strings: bool = False, **arguments: Any) -> Bank:
    rng = np.random.default_rng(3)
    keys = rng.integers(-5, 40, 500)
    scores = rng.random(500)
    bank = Bank(method, seed=4, **arguments)
    bank.run([f"ключ {key}" for key in keys] if strings else keys, scores, rng.random(500) < 0.2 + 0.5 * scores)
    return bank


def rewritten(whole: bytes, **changes: Any) -> bytes:
    """A file with another header, whose checksum is right: what a forger or another version would write."""
    length = struct.unpack_from("<I", whole, 12)[0]
    text = json.dumps({**json.loads(whole[48 : 48 + length]), **changes}).encode()
    start = struct.pack("<8sII32s", b"calibank", FORMAT, len(text), hashlib.sha256(text).digest())
    return (start + text).ljust(4096, b"\0") + whole[4096:]


def with_array(whole: bytes, name: str, values: Any) -> bytes:
    """A file with another array of the same length, checksums included."""
    length = struct.unpack_from("<I", whole, 12)[0]
    arrays = json.loads(whole[48 : 48 + length])["arrays"]
    place = arrays[name]
    content = np.asarray(values).tobytes()
    assert len(content) == place["bytes"]
    content += bytes(-len(content) % 4096)
    place["checksum"] = naive_checksum(content)
    end = place["offset"] + len(content)
    return rewritten(whole[: place["offset"]] + content + whole[end:], arrays=arrays)


def naive_checksum(content: bytes) -> str:
    """The checksum of the pages of an array: that of each 8 MiB goes on from the one before."""
    total = 0
    for first in range(0, len(content), 2**23):
        total = checksum_of_part(content[first : first + 2**23], total)
    return f"{total:016x}"


def checksum_of_part(content: bytes, before: int) -> int:
    """Eight lanes, each of every eighth word, and the lanes one after another."""

    def stirred(lane: int, word: int) -> int:
        lane = (lane + word * 0xBF58476D1CE4E5B9) % 2**64
        return (lane << 31 | lane >> 33) * 0x94D049BB133111EB % 2**64

    size = len(content)
    content += bytes(64 - size % 64)  # a last block is there in any case
    total = stirred(before, size)
    for i in range(8):
        lane = i + 1
        for word in struct.unpack(f"<{len(content) // 8}Q", content)[i::8]:
            lane = stirred(lane, word)
        total = mix_word(total ^ lane) % 2**64
    return total
