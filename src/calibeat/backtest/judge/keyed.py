"""Whether keys are worth it: one sentence on a method with keys, without them, and with a pooled start."""

from __future__ import annotations

from calibeat._util.words import decimals
from calibeat.backtest.replay.contenders import KeyVariants

from .compare import Comparison


def sentence_on_keys(compared: Comparison, variants: KeyVariants, labels: dict[str, str]) -> str:
    """Which of the three has the least log-loss, and whether that is beyond the 95 % interval."""
    label = labels[variants.keyed]
    kinds = {
        variants.keyed: "with a stream for each key",
        variants.pooled: "with keys that start from what all keys have taught",
        variants.without: "without keys",
    }
    losses = {name: compared.measured(name, "log_loss") for name in kinds}
    best, *others = sorted(kinds, key=losses.__getitem__)
    ends = [compared.difference(best, other, "log_loss") for other in others]
    digits = decimals(losses.values())
    shown = ", ".join(f"{losses[name]:.{digits}f} {kinds[name]}" for name in kinds)
    tied = [kinds[other] for other, (_, _, high) in zip(others, ends, strict=True) if high >= 0.0]
    settled = "beyond the 95 % interval" if not tied else f"not to be told apart from {' and '.join(tied)}"
    return f"Log-loss of {label}: {shown}. Best is {label} {kinds[best]}, {settled}."
