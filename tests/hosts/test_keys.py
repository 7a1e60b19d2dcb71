"""Hashes of keys: the same in every host, another for every seed, and nobody can choose keys that collide."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pytest
from banks import content

from calibeat import TOPS, Bank
from calibeat.core.subset import plain
from calibeat.hosts.keys import LONG_STRING, Index, Seed, check_keys, int_hash, plain_key, short_hash

MASK = 2**64 - 1


def unmixed(word: int) -> int:
    """The inverse of SplitMix64's finaliser: the integer whose hash without a seed is the upper bits of a word."""
    word ^= (word >> 31) ^ (word >> 62)
    word = word * pow(0x94D049BB133111EB, -1, 2**64) & MASK
    word ^= (word >> 27) ^ (word >> 54)
    word = word * pow(0xBF58476D1CE4E5B9, -1, 2**64) & MASK
    return word ^ (word >> 30) ^ (word >> 60)


def colliding_ints(count: int) -> Any:
    """Keys that have one and the same hash without a seed: 229 times the time for 10,000 of them."""
    return np.array([unmixed((123 << 33) | i) for i in range(count)], dtype=np.uint64).view(np.int64)


def fnv(text: bytes) -> int:
    h = 2166136261
    for byte in text:
        h = ((h ^ byte) * 16777619) & 0xFFFFFFFF
    return h


# Pairs of blocks, each of which leads FNV-1a from one state to the same next one.
PAIRS = [
    ("009f8a", "099aa0"),
    ("10298b", "1498b8"),
    ("2088eb", "243938"),
    ("319dfa", "389cc0"),
    ("4059db", "442828"),
    ("50c28c", "5482f0"),
    ("6282fc", "66c280"),
    ("73298b", "7798b8"),
]


def colliding_strings() -> list[str]:
    """256 strings that have one and the same hash by FNV-1a, which has no seed."""
    return ["".join(choice) for choice in product(*PAIRS)]


def longest_probe(index: Any) -> int:
    """How many places the slowest look-up visits."""
    from calibeat.hosts.keys import home

    size = len(index.table)
    places = np.empty(index.count, dtype=np.int64)
    taken = index.table >= 0
    places[index.table[taken]] = np.flatnonzero(taken)
    homes = np.array([home(int(word), size) for word in index._hashes(0, index.count)])
    return int(((places - homes) % size).max())


@pytest.mark.parametrize("few", [False, True])
def test_integers_that_collided_do_not(few: bool) -> None:
    keys = colliding_ints(4000)
    assert len({unmixed_hash(key) for key in keys[:50].tolist()}) == 1
    for each in (Index("ints"), Index("ints", Seed(7))):
        if few:
            for key in keys.tolist():
                each.add_one(key)
        else:
            each.add(check_keys(keys))
        assert each.count == 4000 and longest_probe(each) < 200
        assert each.find(check_keys(keys)).tolist() == list(range(4000))


def unmixed_hash(key: int) -> int:
    from calibeat.core.randomness import mix_words

    return int(mix_words(key & MASK) >> 33)


def test_strings_that_collided_do_not() -> None:
    names = colliding_strings()
    assert len(set(names)) == 256 and len({fnv(name.encode()) for name in names}) == 1
    for seed in range(20):
        assert len({Seed(seed).of_bytes(name.encode()) for name in names}) >= 255
    index = Index("strings")
    index.add(check_keys(names))
    assert longest_probe(index) < 60


def test_one_hash_in_every_host() -> None:
    rng = np.random.default_rng(1)
    words = ["", "a", "ab", "abc", "käse", *("x" * n for n in (61, 62, 63, 64, 65, 66, 200))]
    words += ["".join(map(chr, rng.integers(32, 1000, rng.integers(0, 90)))) for _ in range(300)]
    column = check_keys(words)
    text, starts, ends = column.part(0, len(column))
    for seed in (Seed(0), Seed(2**64 - 1), Seed.random()):
        one_by_one = [seed.of_bytes(word.encode()) for word in words]
        assert seed.of_strings(text, starts, ends).tolist() == one_by_one
        for word, hashed in zip(words, one_by_one, strict=True):
            if len(word.encode()) <= LONG_STRING:
                assert plain(short_hash)(word.encode(), 0, len(word.encode()), *seed.point) == hashed  # type: ignore[arg-type]
        numbers = np.array([0, 1, -1, 2**63 - 1, -(2**63), *rng.integers(-(2**62), 2**62, 100)])
        assert seed.of_ints(numbers).tolist() == [int_hash(number, *seed.words) for number in numbers.tolist()]
        assert all(0 <= word < 2**31 for word in one_by_one)


@pytest.mark.parametrize("names", [[f"merchant-{i:07d}" for i in range(5000)], [f"{i}" * 20 for i in range(2000)]])
def test_names_that_are_alike_are_spread(names: list[str]) -> None:
    for seed in (0, 12345):
        index = Index("strings", Seed(seed))
        index.add(check_keys(names))
        words = index._hashes(0, index.count).astype(np.int64)
        assert len(np.unique(words)) > 0.999 * len(names)
        assert longest_probe(index) < 200
        counts = np.bincount(words >> 25, minlength=64)
        assert counts.max() < 2.2 * len(names) / 64 + 20


def test_the_seed_changes_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [f"k{i % 90}" for i in range(300)]
    scores = np.linspace(0, 1, 300)
    found = []
    for seed in (0, 1, 2):
        monkeypatch.setattr(Seed, "random", classmethod(lambda cls, seed=seed: cls(seed)))
        bank = Bank(TOPS, prior="pooled")
        forecasts = bank.run(keys, scores, scores > 0.4)
        del bank["k7"]
        found.append((forecasts.tobytes(), list(bank), content(bank)))
    assert found[0] == found[1] == found[2]


def test_every_bank_has_a_seed_of_its_own_which_its_file_keeps(tmp_path: Path) -> None:
    one, two = Bank(TOPS), Bank(TOPS)
    for bank in (one, two):
        bank.run(["a", "b"], [0.5, 0.5], [1, 0])
    assert one._rows.index.seed != two._rows.index.seed  # type: ignore[union-attr]
    one.save(tmp_path / "a")
    twin = Bank.load(tmp_path / "a")
    twin.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert len(one.drop_idle(before=0)) == 2


def test_a_long_key_is_not_read_byte_by_byte() -> None:
    """A megabyte took half a second. In CPU time, and by a factor that a slow machine does not reach."""
    long = "x" * 1_000_000
    bank = Bank(TOPS)
    begin = process_time()
    bank.predict(long, 0.5)
    assert long in bank and long + "y" not in bank
    bank.run([long, long + "z"], [0.5, 0.5], [1, 0])
    taken = process_time() - begin
    begin = process_time()
    sum(range(1_000_000))
    for _ in long:
        pass
    loop = process_time() - begin
    assert taken < 3.0 * loop + 0.05
    assert bank[long].events == 2


def test_a_search_in_a_table_without_a_free_place_ends() -> None:
    """As in a file that nobody checked."""
    for known, unknown in ((5, 6), ("a", "b")):
        for table in (0, 1, 2**31 - 1):
            index = Index("ints" if known == 5 else "strings")
            assert index.add(check_keys([known])).tolist() == [0]
            index.table[:] = table
            if table == 0:
                assert index.find(check_keys([known])).tolist() == [0]
            for look_up in (
                lambda index=index, unknown=unknown: index.find(check_keys([unknown] * 50)),
                lambda index=index, unknown=unknown: index.find_one(plain_key(unknown)),
                lambda index=index, unknown=unknown: index.add(check_keys([unknown])),
            ):
                with pytest.raises(IndexError, match="the table points at keys that are not here"):
                    look_up()


@pytest.mark.parametrize("kind", ["ints", "strings"])
def test_a_table_is_as_large_as_its_keys_need(kind: str) -> None:
    """A batch may make room for all its events; what its keys do not need is given back."""
    rng = np.random.default_rng(0)
    index = Index(kind)
    known: dict[int, int] = {}
    for events, most in ((100, 10), (70_000, 50), (500, 10**9), (100, 10), (70_000, 10**9)):
        drawn = rng.integers(0, most, events).tolist()
        for key in drawn:
            known.setdefault(key, len(known))
        keys = drawn if kind == "ints" else [f"k{key}" for key in drawn]
        slots = index.add(check_keys(keys))
        assert slots.tolist() == [known[key] for key in drawn]
        assert index.count == len(known)
        assert len(index.table) <= max(64, 2 * index.count)
        assert index.count <= 0.6 * len(index.table)
        assert index.find(check_keys(keys)).tolist() == slots.tolist()
