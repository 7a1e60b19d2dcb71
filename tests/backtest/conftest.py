"""The modules of a replay copy constants of `read.rows`: they are imported before a test sets these to other values."""

import calibeat.backtest.run  # noqa: F401 - as above
