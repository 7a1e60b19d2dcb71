"""What the tests of the bank share."""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from calibeat import AIOLI, OGD, ONS, OPS, TOBS, TOPS, Bank, Method, Temperature
from calibeat.core.method import PRESETS
from calibeat.hosts.bankfile import header_of, sections_of

IN_A_ROW = {name: method for name, method in PRESETS.items() if not method.needs_history}
OTHERS = {
    "aioli": replace(OPS, learner=AIOLI()),
    "ogd": replace(OPS, learner=OGD()),
    "temperature": Method(Temperature(), ONS()),
    "temperature aioli": Method(Temperature(), AIOLI()),
    "beta aioli": replace(TOBS, learner=AIOLI()),
}


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
    with bank._lock:
        bank._recover()  # as every call does
    header, sections = header_of(bank), sections_of(bank)
    if not receipts:
        del header["receipts"]
        sections.pop("receipts", None)
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
    start = struct.pack("<8sII32s", b"calibank", 1, len(text), hashlib.sha256(text).digest())
    return (start + text).ljust(4096, b"\0") + whole[4096:]


def with_array(whole: bytes, name: str, values: Any) -> bytes:
    """A file with another array of the same length, checksums included."""
    length = struct.unpack_from("<I", whole, 12)[0]
    arrays = json.loads(whole[48 : 48 + length])["arrays"]
    place = arrays[name]
    content = np.asarray(values).tobytes()
    assert len(content) == place["bytes"]
    place["sha256"] = hashlib.sha256(content).hexdigest()
    end = place["offset"] + place["bytes"]
    return rewritten(whole[: place["offset"]] + content + whole[end:], arrays=arrays)
