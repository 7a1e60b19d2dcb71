"""Whether scores are of the kind that was named: percent that never exceed 1 are taken for probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from calibeat._util.times import OK
from calibeat.backtest.options import Options
from calibeat.errors import InvalidInput

from .batch import Numbers
from .guess import FEW


@dataclass(eq=False)
class ScoreKind:
    """What was seen so far of the columns of scores, where they are said to be percent or logits.

    Percent must exceed 1 somewhere, or have their sign. Logits must be outside [0, 1] somewhere, unless they are few.
    """

    options: Options
    _seen: dict[str, int] = field(default_factory=dict)  # by role: scores that may be probabilities
    _sure: set[str] = field(default_factory=set)  # roles of which one score is none

    def look(self, role: str, scores: Numbers, show: Callable[[str, int], str]) -> None:
        """Some rows of a column."""
        kind = self.options.score_kind
        if kind == "probability" or self.options.insist or role in self._sure:
            return
        there = scores.states == OK
        values = scores.values[there]
        sign = kind == "percent" and there.any() and show(role, int(there.argmax())).strip("'\" ").endswith("%")
        if sign or (values > 1.0).any() or (kind == "logit" and (values < 0.0).any()):
            self._sure.add(role)
        else:
            self._seen[role] = self._seen.get(role, 0) + len(values)

    def check(self) -> None:
        """Once the log has ended."""
        kind, least = self.options.score_kind, FEW if self.options.score_kind == "logit" else 1
        for role, count in self._seen.items():
            if role not in self._sure and count >= least:
                wanted = "above 1 somewhere" if kind == "percent" else "outside [0, 1] somewhere"
                how = self.options.how("--insist", "insist=True")
                raise InvalidInput(
                    f"{role}s must be {wanted} where they are {kind}, got {count:,} in [0, 1]: they look like "
                    f"probabilities; {how} if they are {kind}"
                )
