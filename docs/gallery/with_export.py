"""Export: learn in Python, then forecast in a database that has never heard of calibeat."""

import sqlite3
import textwrap

import numpy as np

from calibeat import Calibrator
from calibeat.examples import flights

stream, n = flights(), 30_000
log, later = slice(0, n), stream.scores[n : n + 5000]

for method in ("ops", "auto"):
    cal = Calibrator(method)
    cal.run(stream.scores[log], stream.outcomes[log], due=stream.due[log])
    exported = cal.export()
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE flights (score REAL)")
    database.executemany("INSERT INTO flights VALUES (?)", [(score,) for score in later.tolist()])
    said = [row[0] for row in database.execute(f"SELECT {exported.sql} FROM flights ORDER BY rowid")]  # noqa: S608
    apart = np.abs(np.array(said) - cal.predict_many(later)).max()
    print(f"{method}: {len(exported.sql):,} characters of SQL, at most 1e-12 apart: {apart <= 1e-12}")

fresh = Calibrator("ops").export()
print("\n".join(textwrap.wrap(fresh.sql, 118)))
print(fresh.python)
