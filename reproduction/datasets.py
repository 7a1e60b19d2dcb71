"""The paper's four real datasets: where they are found, that they are the right ones, and the order of a stream.

Every row is used as it stands in the paper's metadata table (Table 2). All four are public under the CC0 licence.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat.errors import InvalidInput

from .storage import write_text

DESIGNS = ("drift", "iid")
VARIABLE = "CALIBEAT_DATA"


@dataclass(frozen=True)
class Dataset:
    """One dataset and its design: how rows become a stream."""

    name: str
    title: str
    file: str
    checksum: str  # SHA-256 of the file
    content: str  # SHA-256 of the columns in use, however the file is written (see `content_checksum`)
    source: str
    openml: str  # name or number of the same table on OpenML
    header: str  # the columns in use
    words: tuple[str, ...]  # those of them that hold words
    target: str
    positive: tuple[str | float, ...]  # the values of the target that are outcome 1
    sort_by: str
    levels: tuple[str, ...] = ()  # the order of `sort_by` where its values are words
    integer_noise: bool = False  # one of -1, 0, 1 is added to `sort_by`
    noise: float = 0.0  # standard deviation of the normal noise that is added to `sort_by`
    first_level_dropped: bool = False  # of the indicators that stand for a column of words
    rows: int = 0  # how many rows are used, after shuffling; 0: all
    train: int = 1000  # T_train
    calibration: int = 1000  # T_cal
    window: int = 500  # W

    @property
    def columns(self) -> list[str]:
        """The columns in use, in the order of the file."""
        return self.header.split(",")


DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            name="bank",
            title="Bank marketing",
            file="bank.csv",
            checksum="521ed4cb80c2ad5c0cb98bcd18e72b2f276646a9447fac2937fdd127e9d5240a",
            content="3ff3266f05aeb2c16b5a5a26b5dd9644c994d1fa6b15fe41236220332e195239",
            source="https://www.kaggle.com/datasets/kukuroo3/bank-marketing-response-predict",
            openml="bank-marketing-response-predict",
            header=(
                "age,job,marital,education,default,balance,housing,loan,contact,day,month,campaign,pdays,"
                "previous,poutcome,y"
            ),
            words=("job", "marital", "education", "default", "housing", "loan", "contact", "month", "poutcome", "y"),
            target="y",
            positive=("yes",),
            sort_by="age",
            integer_noise=True,
            rows=12_000,
        ),
        Dataset(
            name="credit",
            title="Credit default",
            file="credit.csv",
            checksum="88bd2bd25327b52af2148b7437740aca427aaf8f0e52ad782ee8bbae44b509bd",
            content="572ca042176fa6211dd9f1a89ac7693dd3d00984715c01999a9785952b20d988",
            source="https://www.kaggle.com/datasets/uciml/default-of-credit-card-clients-dataset",
            openml="42477",
            header=(
                "LIMIT_BAL,SEX,EDUCATION,MARRIAGE,AGE,PAY_0,PAY_2,PAY_3,PAY_4,PAY_5,PAY_6,BILL_AMT1,"
                "BILL_AMT2,BILL_AMT3,BILL_AMT4,BILL_AMT5,BILL_AMT6,PAY_AMT1,PAY_AMT2,PAY_AMT3,PAY_AMT4,"
                "PAY_AMT5,PAY_AMT6,default payment next month"
            ),
            words=(),
            target="default payment next month",
            positive=(1,),
            sort_by="SEX",
            noise=0.05,
        ),
        Dataset(
            name="churn",
            title="Customer churn",
            file="Churn_Modelling.csv",
            checksum="3996cd1fa372e0db0cd9c0ebac35bbd4e8e3c65fb942bb010c826e7b1eeef0a0",
            content="494235fc34fad7ce777555a4a470ff6819e743af6c6ad37a0e4cb415c28059a9",
            source="https://www.kaggle.com/datasets/shrutimechlearn/churn-modelling",
            openml="Churn_Modelling",
            header=(
                "CreditScore,Geography,Gender,Age,Tenure,Balance,NumOfProducts,HasCrCard,IsActiveMember,"
                "EstimatedSalary,Exited"
            ),
            words=("Geography", "Gender"),
            target="Exited",
            positive=(1,),
            sort_by="Geography",
            levels=("France", "Spain", "Germany"),
            first_level_dropped=True,
        ),
        Dataset(
            name="fetal",
            title="Fetal health",
            file="fetal_health.csv",
            checksum="90bd62b95020ffa466f01a2942a79cf6b8b04cc5ac680144d705002d893f6622",
            content="664f80cc0ccf8c5bdd274b48db0b055b1b53164fbbd61d295630811145450fe0",
            source="https://www.kaggle.com/datasets/andrewmvd/fetal-health-classification",
            openml="fetal_health",
            header=(
                "baseline value,accelerations,fetal_movement,uterine_contractions,light_decelerations,"
                "severe_decelerations,prolongued_decelerations,abnormal_short_term_variability,"
                "mean_value_of_short_term_variability,percentage_of_time_with_abnormal_long_term_variability,"
                "mean_value_of_long_term_variability,histogram_width,histogram_min,histogram_max,"
                "histogram_number_of_peaks,histogram_number_of_zeroes,histogram_mode,histogram_mean,"
                "histogram_median,histogram_variance,histogram_tendency,fetal_health"
            ),
            words=(),
            target="fetal_health",
            positive=(2, 3),
            sort_by="accelerations",
            noise=0.001,
            train=626,
            calibration=300,
            window=100,
        ),
    )
}


# ---- finding them ------------------------------------------------------------------------------------------------


def data_folder(given: Path | None, cache: Path) -> Path:
    """The folder with the four datasets: `given`, else that of CALIBEAT_DATA, else that of a checkout, else the cache.

    The cache is filled from OpenML as far as OpenML has the datasets.
    """
    folder = given or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None) or checkout_folder()
    reasons: list[str] = []
    if folder is None:
        folder = cache / "data"
        for dataset in DATASETS.values():
            if file_of(dataset, folder) is None:
                reasons += fetch(dataset, folder)
    missing = [dataset.file for dataset in DATASETS.values() if file_of(dataset, folder) is None]
    if missing:
        why = "".join(f" {reason.rstrip('.')}." for reason in dict.fromkeys(reasons))
        error = InvalidInput(f"{folder} must hold the data, but has no {', '.join(missing)}.{why}")
        error.add_note(where_to_get())  # which a command prints below, line by line
        raise error
    return folder


def checkout_folder() -> Path | None:
    """The folder `data` of the repository, if all its files are there."""
    folder = Path(__file__).parents[1] / "data"
    return folder if all(file_of(dataset, folder) for dataset in DATASETS.values()) else None


def file_of(dataset: Dataset, folder: Path) -> Path | None:
    """The dataset's file, plain or compressed with gzip; None if the folder has neither."""
    for path in (folder / dataset.file, folder / f"{dataset.file}.gz"):
        if path.is_file():
            return path
    return None


def where_to_get() -> str:
    """What a person has to do who has no data."""
    return "\n".join(
        [
            "The experiments on real data need four public datasets (licence: Creative Commons CC0):",
            *(f"  {dataset.file:20} {dataset.title}, {dataset.source}" for dataset in DATASETS.values()),
            "A checkout of calibeat's repository has them in its folder data.",
            f"Else put the four files in one folder and name it: --data DIR, or the environment variable {VARIABLE}.",
        ]
    )


def fetch(dataset: Dataset, folder: Path) -> list[str]:
    """Store the table from OpenML as CSV; or say in a sentence why it could not be had there."""
    from sklearn.datasets import fetch_openml

    which = {"data_id": int(dataset.openml)} if dataset.openml.isdigit() else {"name": dataset.openml}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it tells of every attempt
            # Its parser by pandas stumbles over numbers that are declared as categories, such as credit's outcome.
            found = fetch_openml(**which, data_home=folder, as_frame=True, parser="liac-arff", n_retries=1, delay=0.1)
        store(dataset, found.frame, folder)
    except (OSError, ValueError) as error:  # no network; no such dataset; or another table under that name
        return [f"OpenML says: {' '.join(str(error).split()) or type(error).__name__}"]
    return []


def store(dataset: Dataset, frame: Any, folder: Path) -> None:
    """Write a fetched table as the dataset's file; raise if its content is another."""
    if frame.shape[1] == len(dataset.columns):  # OpenML's copy of credit calls its columns x1, x2, ..., y
        frame = frame.set_axis(dataset.columns, axis=1)
    known = set(dataset.columns) <= set(frame.columns)
    if not known or content_checksum(dataset, frame) != dataset.content:
        raise InvalidInput(f"{dataset.openml} of OpenML must be the table that the paper used, got another")
    write_text(folder / dataset.file, frame[dataset.columns].to_csv(index=False))


# ---- reading them ------------------------------------------------------------------------------------------------


def read(dataset: Dataset, folder: Path) -> Any:
    """The file as a data frame, after its checksum was compared."""
    import pandas as pd

    path = file_of(dataset, folder) or folder / dataset.file
    text = content_of(path)
    checksum = hashlib.sha256(text).hexdigest()
    try:
        frame = pd.read_csv(io.BytesIO(text))
        same = checksum == dataset.checksum or content_checksum(dataset, frame) == dataset.content
    except (ValueError, KeyError, UnicodeDecodeError):
        same = False
    if not same:
        raise InvalidInput(
            f"{path} must be the file that the paper used (SHA-256 {dataset.checksum[:12]}...), got "
            f"{checksum[:12]}... - get it again from {dataset.source}"
        )
    return frame


def content_of(path: Path) -> bytes:
    """The bytes of a file as they are without compression; of a damaged one, as they lie there."""
    stored = path.read_bytes()
    if path.suffix != ".gz":
        return stored
    try:
        return gzip.decompress(stored)
    except (OSError, EOFError, zlib.error):
        return stored


def verify(folder: Path) -> None:
    """Raise unless all four files are the paper's; scores in the cache say nothing of the files that are named."""
    for dataset in DATASETS.values():
        path = file_of(dataset, folder)
        if path is None or hashlib.sha256(content_of(path)).hexdigest() != dataset.checksum:
            read(dataset, folder)  # it may be the same table, written in another way


def content_checksum(dataset: Dataset, frame: Any) -> str:
    """SHA-256 of the columns in use, row after row, numbers as floats: the same for every way to write the table."""
    digest = hashlib.sha256()
    for name in dataset.columns:
        column = frame[name]
        cells = map(str, column) if name in dataset.words else (repr(float(value)) for value in column)
        digest.update("\n".join(cells).encode())
    return digest.hexdigest()


def table(dataset: Dataset, frame: Any) -> tuple[Vector, Vector, Vector]:
    """Features (words as indicators), outcomes, and the key by which the drift sorts."""
    import pandas as pd

    outcomes = frame[dataset.target].isin(dataset.positive).to_numpy(np.float64)
    key = frame[dataset.sort_by]
    if dataset.levels:
        key = key.map({level: i for i, level in enumerate(dataset.levels)})
    features = frame[[name for name in dataset.columns if name != dataset.target]]
    indicators = pd.get_dummies(
        features,
        columns=[name for name in dataset.words if name != dataset.target],
        drop_first=dataset.first_level_dropped,
    )
    return indicators.to_numpy(np.float64), outcomes, key.to_numpy(np.float64)


def ordered(dataset: Dataset, key: Vector, design: str, random: np.random.RandomState) -> Ints:
    """The rows in the order of the stream: shuffled, and for a drift sorted by the noisy key."""
    rows: Ints = random.permutation(len(key))
    if design == "iid":
        return rows[: dataset.rows or None]
    noisy = key[rows]
    if dataset.integer_noise:
        noisy = noisy + random.randint(-1, 2, len(key))
    elif dataset.noise:
        noisy = noisy + random.normal(0.0, dataset.noise, len(key))
    rows, noisy = rows[: dataset.rows or None], noisy[: dataset.rows or None]
    return rows[np.argsort(noisy, kind="stable")]
