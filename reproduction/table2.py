"""Table 2: the four datasets, with what the files hold."""

from __future__ import annotations

from .datasets import DATASETS, read
from .section import Section, Table, prose
from .settings import Settings
from .tasks import Results


def report(settings: Settings, _results: Results) -> Section:
    """Table 2, with what the files hold."""
    rows = []
    for dataset in DATASETS.values():
        frame = read(dataset, settings.data) if settings.data else None
        count = "" if frame is None else f"{len(frame):,}"
        rate = "" if frame is None else f"{frame[dataset.target].isin(dataset.positive).mean():.3f}"
        noise = "-1, 0 or 1" if dataset.integer_noise else f"N(0, {dataset.noise:g})" if dataset.noise else "none"
        rows.append(
            [
                dataset.title,
                str(dataset.train),
                str(dataset.calibration),
                str(dataset.window),
                dataset.sort_by,
                noise,
                count,
                f"{dataset.rows or len(frame) if frame is not None else 0:,}",
                rate,
                dataset.checksum[:12],
                dataset.source,
            ]
        )
    head = [
        "name",
        "T_train",
        "T_cal",
        "W",
        "sort by",
        "noise",
        "rows",
        "used",
        "share of ones",
        "SHA-256",
        "link to dataset",
    ]
    return Section(words=[WORDS], tables=[Table("The four datasets", head, rows)], csv_head=head, csv_rows=rows)


WORDS = prose("""
    T_train, T_cal, W and the sorting covariate are the paper's. Rows are shuffled first, so that equal values of the
    covariate come in random order; countries come as France, Spain, Germany. Appendix A.1 says that "In each case some
    noise was added to the covariate"; as published, churn has none, its three countries being shuffled each.
    Columns of words become indicators, which
    the paper does not say. All four files are under the CC0 licence.
""")
