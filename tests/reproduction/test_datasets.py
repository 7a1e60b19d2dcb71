"""The paper's datasets: found, verified, ordered; and forests whose scores are those of the published experiments."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from pathlib import Path

import golden
import numpy as np
import pytest
from conftest import DATA

from calibeat import InvalidInput
from reproduction import datasets, forests, shifts
from reproduction.datasets import DATASETS
from reproduction.forests import ForestStream
from reproduction.storage import load_arrays, save_arrays, write_text


@pytest.fixture
def data() -> Path:
    return DATA


@pytest.fixture
def no_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an installed wheel, which has no folder data beside it."""
    monkeypatch.setattr(datasets, "checkout_folder", lambda: None)
    monkeypatch.delenv("CALIBEAT_DATA", raising=False)


def test_the_order_in_which_data_are_looked_for(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    shutil.copytree(data, other)
    monkeypatch.setenv("CALIBEAT_DATA", str(tmp_path))
    assert datasets.data_folder(other, tmp_path) == other  # --data comes first
    monkeypatch.setenv("CALIBEAT_DATA", str(other))
    assert datasets.data_folder(None, tmp_path) == other
    monkeypatch.delenv("CALIBEAT_DATA")
    assert datasets.data_folder(None, tmp_path) == data  # that of the checkout
    monkeypatch.setattr(datasets, "checkout_folder", lambda: None)
    other.rename(tmp_path / "data")
    assert datasets.data_folder(None, tmp_path) == tmp_path / "data"  # the cache, once it is filled


def test_a_repository_without_data_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert datasets.checkout_folder() == DATA
    monkeypatch.setattr(datasets, "__file__", str(tmp_path / "reproduction" / "datasets.py"))
    assert datasets.checkout_folder() is None


def test_the_readme_of_the_data_names_each_file_with_its_checksum(data: Path) -> None:
    text = (data / "README.md").read_text()
    for dataset in DATASETS.values():
        (line,) = [line for line in text.splitlines() if f"`{dataset.file}.gz`" in line]
        assert dataset.checksum in line and dataset.source in line and dataset.title in line
    assert {path.name for path in data.iterdir()} == {"README.md", *(f"{d.file}.gz" for d in DATASETS.values())}


def test_missing_data_are_named_with_their_licence_and_place(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as error:
        datasets.data_folder(tmp_path, tmp_path)
    for dataset in DATASETS.values():
        assert dataset.file in str(error.value) and dataset.title in error.value.__notes__[0]
    assert "CC0" in error.value.__notes__[0] and "--data" in error.value.__notes__[0]
    assert "CALIBEAT_DATA" in error.value.__notes__[0]


@pytest.mark.usefixtures("no_checkout")
def test_without_a_network_openml_gives_the_same_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens there
    with pytest.raises(InvalidInput, match=r"must hold the data.*OpenML says: ") as error:
        datasets.data_folder(None, tmp_path)
    assert "CC0" in error.value.__notes__[0]
    assert not list(tmp_path.glob("data/*.csv"))


@pytest.mark.parametrize("name", DATASETS)
def test_the_files_are_verified(name: str, data: Path, tmp_path: Path) -> None:
    dataset = DATASETS[name]
    frame = datasets.read(dataset, data)
    assert datasets.content_checksum(dataset, frame) == dataset.content
    packed = tmp_path / f"{dataset.file}.gz"
    whole = (data / packed.name).read_bytes()
    for damaged in (whole[:-20], whole[:100] + bytes(50) + whole[150:], b"", b"not gzip"):
        packed.write_bytes(damaged)
        with pytest.raises(InvalidInput, match="must be the file that the paper used"):
            datasets.read(dataset, tmp_path)
    lines = gzip.decompress(whole).decode().splitlines()
    (tmp_path / dataset.file).write_text("\r\n".join(lines))  # the same table, written in another way
    assert datasets.read(dataset, tmp_path).equals(frame)
    for text in ("\n".join(lines[:-1]), "nothing,here\n1,2\n", "", "\x00\xff"):
        (tmp_path / dataset.file).write_text(text)
        with pytest.raises(InvalidInput, match="must be the file that the paper used"):
            datasets.read(dataset, tmp_path)


def test_a_table_of_openml_is_stored_if_it_is_the_right_one(data: Path, tmp_path: Path) -> None:
    credit = DATASETS["credit"]
    frame = datasets.read(credit, data)[credit.columns]
    openml = frame.set_axis([*(f"x{i}" for i in range(1, 24)), "y"], axis=1).astype({"y": "category"})
    datasets.store(credit, openml, tmp_path)
    assert datasets.read(credit, tmp_path).equals(frame)
    for wrong in (frame.iloc[::-1], frame.iloc[:, :5]):
        with pytest.raises(InvalidInput, match="must be the table that the paper used"):
            datasets.store(credit, wrong, tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()


def test_openml_fills_the_cache(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """scikit-learn's fetcher itself, on answers in the form of OpenML's that lie in its own cache."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    credit = DATASETS["credit"]
    frame = datasets.read(credit, data)[credit.columns]
    names = [*(f"x{i}" for i in range(1, 24)), "y"]
    lines = ["@RELATION credit", *(f"@ATTRIBUTE {name} REAL" for name in names[:-1]), "@ATTRIBUTE y {0,1}", "@DATA"]
    arff = ("\n".join(lines) + "\n" + frame.to_csv(index=False, header=False)).encode()
    description = {
        "id": "42477",
        "name": "credit",
        "description": "",
        "version": "1",
        "format": "ARFF",
        "status": "active",
        "url": "https://www.openml.org/data/v1/download/21854401",
        "default_target_attribute": "y",
        "md5_checksum": hashlib.md5(arff).hexdigest(),  # noqa: S324 - OpenML's checksum, not ours
    }
    features = [
        {
            "index": str(i),
            "name": name,
            "data_type": "nominal" if name == "y" else "numeric",
            "is_target": str(name == "y").lower(),
            "is_ignore": "false",
            "is_row_identifier": "false",
            "number_of_missing_values": "0",
        }
        for i, name in enumerate(names)
    ]
    answers = {
        "api/v1/json/data/42477": json.dumps({"data_set_description": description}).encode(),
        "api/v1/json/data/features/42477": json.dumps({"data_features": {"feature": features}}).encode(),
        "api/v1/json/data/qualities/42477": json.dumps({"data_qualities": {"quality": []}}).encode(),
        "data/v1/download/21854401": arff,
    }
    for address, answer in answers.items():
        path = tmp_path / "openml" / "openml.org" / f"{address}.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(answer))
    assert datasets.fetch(credit, tmp_path) == []
    fetched, ours = (datasets.table(credit, table) for table in (datasets.read(credit, tmp_path), frame))
    for one, two in zip(fetched, ours, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("name", DATASETS)
def test_designs(name: str, data: Path) -> None:
    dataset = DATASETS[name]
    features, outcomes, key = datasets.table(dataset, datasets.read(dataset, data))
    assert features.shape[0] == len(outcomes) == len(key)
    assert set(outcomes) == {0.0, 1.0} and np.isfinite(features).all()
    used = dataset.rows or len(key)
    iid = datasets.ordered(dataset, key, "iid", np.random.RandomState(1))
    drift = datasets.ordered(dataset, key, "drift", np.random.RandomState(1))
    assert len(set(iid)) == len(set(drift)) == used
    assert set(iid) == set(drift)
    rank = np.arange(used)
    assert abs(np.corrcoef(rank, key[iid])[0, 1]) < 0.1
    assert np.corrcoef(rank, key[drift])[0, 1] > 0.75
    # Where a value stands before a smaller one, noise has put it there.
    most = {"bank": 2.0, "credit": 1.0, "churn": 0.0, "fetal": 0.01}[name]
    assert (np.maximum.accumulate(key[drift]) - key[drift]).max() <= most


@pytest.mark.parametrize(
    ("stream", "stem"), [(ForestStream("fetal", "drift"), "fetal_drift"), (ForestStream("credit", "iid"), "credit_iid")]
)
def test_forests_are_those_of_the_published_experiments(stream: ForestStream, stem: str, data: Path) -> None:
    theirs = golden.scores(f"{stem}_seed0")
    scores, outcomes = forests.grow(stream, 0, data)
    np.testing.assert_array_equal(scores, theirs["scores"])
    np.testing.assert_array_equal(outcomes, theirs["y"])
    assert (stream.train, stream.calibration, stream.window) == (theirs["n_train"], theirs["n_val"], theirs["spacing"])


@pytest.mark.parametrize(("name", "design"), [("churn", "iid"), ("bank", "drift")])
def test_outcomes_are_those_of_the_published_experiments(name: str, design: str, data: Path) -> None:
    """Of bank only within equal ages, whose order depends on how a library sorts."""
    dataset = DATASETS[name]
    theirs = golden.scores(f"{name}_{design}_seed0")["y"]
    _, outcomes, key = datasets.table(dataset, datasets.read(dataset, data))
    rows = datasets.ordered(dataset, key, design, np.random.RandomState(0))
    ours = outcomes[rows][dataset.train :]
    assert ours.sum() == theirs.sum() or name == "bank"
    if name == "churn":
        np.testing.assert_array_equal(ours, theirs)
    else:
        blocks = np.abs(np.cumsum(ours)[499::500] - np.cumsum(theirs)[499::500])
        assert blocks.max() <= 20


def test_scores_are_kept_by_what_they_depend_on(tmp_path: Path) -> None:
    stream = ForestStream("label", "drift", "text", trees=3, events=64)
    first = forests.scored(stream, 0, None, tmp_path)
    path = stream.path(0, tmp_path)
    made = path.stat().st_mtime_ns
    again = forests.scored(stream, 0, None, tmp_path)
    np.testing.assert_array_equal(first[0], again[0])
    assert first[0].dtype == np.float64
    assert path.stat().st_mtime_ns == made
    others = [
        ForestStream("label", "iid", "text", 3, 64),
        ForestStream("label", "drift", "published", 3, 64),
        ForestStream("label", "drift", "text", 4, 64),
        ForestStream("label", "drift", "text", 3, 65),
        ForestStream("bank", "drift"),
    ]
    paths = {path, stream.path(1, tmp_path), *(other.path(0, tmp_path) for other in others)}
    assert len(paths) == len(others) + 2
    path.write_bytes(path.read_bytes()[:50])  # cut: made again, never believed
    np.testing.assert_array_equal(forests.scored(stream, 0, None, tmp_path)[0], first[0])


def test_a_real_stream_needs_a_folder() -> None:
    with pytest.raises(TypeError):
        forests.grow(ForestStream("bank", "iid"), 0, None)


def test_shift_in_ten_dimensions() -> None:
    random = np.random.RandomState(0)
    x, y = shifts.covariate_shift(180.0, "text", random)
    assert x.shape == (6000, 10) and set(y) == {0.0, 1.0}
    ends = [np.cov(part.T) for part in (x[:1000], x[2500:3500], x[-1000:])]
    largest = [np.linalg.eigh(cov)[1][:, -1] for cov in ends]
    assert np.linalg.eigvalsh(ends[0])[-1] == pytest.approx(11.0, rel=0.25)  # I + 10 uu'
    assert abs(largest[0] @ largest[2]) > 0.7  # after a half turn it is back
    assert abs(largest[0] @ largest[1]) < 0.5
    x, _ = shifts.covariate_shift(0.0, "published", random)
    assert np.linalg.eigvalsh(np.cov(x.T))[-1] == pytest.approx(121.0, rel=0.1)
    x, y = shifts.label_shift(0.9, "text", random)
    assert y[:600].mean() == pytest.approx(0.52, abs=0.06)
    assert y[-600:].mean() == pytest.approx(0.88, abs=0.05)
    assert (x[y == 1].mean(axis=0) - x[y == 0].mean(axis=0)).round(0).tolist() == [1.0, *[0.0] * 9]
    x, y = shifts.label_shift(0.5, "published", random)
    assert x[y == 1, :2].var(axis=0) == pytest.approx([0.5, 0.5], abs=0.05)
    with pytest.raises(InvalidInput, match="protocol must be one of text, published, got 'papre'"):
        shifts.label_shift(0.5, "papre", random)


def test_files_are_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.npz"
    assert load_arrays(path) is None
    save_arrays(path, x=np.arange(3))
    assert load_arrays(path)["x"].tolist() == [0, 1, 2]  # type: ignore[index]

    class Unwritable:
        def __array__(self, *_: object, **__: object) -> np.ndarray:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        save_arrays(path, x=Unwritable())  # type: ignore[arg-type]
    assert load_arrays(path)["x"].tolist() == [0, 1, 2]  # type: ignore[index]
    assert [file.name for file in path.parent.iterdir()] == ["a.npz"]
    write_text(tmp_path / "new" / "page.md", "text\n")
    assert (tmp_path / "new" / "page.md").read_text() == "text\n"
