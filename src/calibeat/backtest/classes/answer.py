"""What a manager reads first, for many classes: one number of events, one line on how sure, and what to do."""

from __future__ import annotations

from calibeat.backtest.judge.verdict import SURE, example_of
from calibeat.report.schema import AnswerInfo, Verdict

from .methods import RAW
from .replay import ClassReplayed

USE = """\
from calibeat import MultiCalibrator

cal = MultiCalibrator({classes}{method}{logits})
cal.run(past_scores, past_labels)   # once, with what is known already

forecast = cal.predict(scores)      # act on forecast.probabilities
cal.update(forecast, label)         # when it is known, in any order
"""

KEEP = """\
from calibeat import MultiCalibrator

cal = MultiCalibrator({classes}{logits})   # beside the raw scores
forecast = cal.predict(scores)
cal.update(forecast, label)
cal.alarm()                                # whether they deserve less trust by now
"""

FITTED = """\
import numpy as np

forecast = np.exp(np.log(scores) / T)   # T has the least log-loss on {which}
forecast /= forecast.sum()
"""
WHICH = {"fts": "the first 1,000 labels", "swts": "the last 2,000 labels, fitted again every 500"}


def answer(replayed: ClassReplayed, found: Verdict, names: list[str], score_kind: str) -> AnswerInfo:
    """From the verdict and the bins of the confidence of the raw scores and of the chosen method."""
    runners = {runner.name: runner for runner in replayed.runners}
    chosen = found["method"]
    pair = [runners[RAW]] if chosen == RAW else [runners[RAW], runners[chosen]]
    library, note = deployment(chosen, names, logits=score_kind == "logit")
    return {
        "happened": example_of(pair, replayed.blocks.used, replayed.blocks.judged),
        "sure": SURE["keep" if chosen == RAW else "use", found["confidence"]],
        "library": library.splitlines(),
        "service": None,
        "note": note,
    }


def deployment(name: str, names: list[str], *, logits: bool) -> tuple[str, str]:
    """The code that puts a method to work, and a remark.

    >>> print(deployment("multi", ["cat", "dog", "bird"], logits=True)[0].splitlines()[2])
    cal = MultiCalibrator(['cat', 'dog', 'bird'], logits=True)
    """
    numbered = names == [str(k) for k in range(len(names))]
    classes = str(len(names)) if numbered or len(names) > 10 else repr(names)
    end = ", logits=True" if logits else ""
    if name == RAW:
        return KEEP.format(classes=classes, logits=end), "Nothing to deploy: go on with the raw scores."
    if name in WHICH:
        return FITTED.format(which=WHICH[name]), "A temperature that is fitted now and then is no class of calibeat."
    method = "" if name == "multi" else f", method={name!r}"
    return USE.format(classes=classes, method=method, logits=end), ""
