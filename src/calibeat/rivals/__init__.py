"""Methods of your own, and of other libraries, beside calibeat's: any object with `predict` and `update`.

A rival is plain Python: ``predict(score)`` gives a probability, ``update(score, outcome)`` learns an outcome. `Host`
serves one as `Calibrator` serves a method, and ``calibeat.backtest(..., methods={"mine": Mine})`` judges one. Both are
as slow as the rival. docs/own-method.md builds one.

>>> class ShareOfOnes:
...     def __init__(self):
...         self.ones, self.all = 1.0, 2.0
...     def predict(self, score):
...         return self.ones / self.all
...     def update(self, score, outcome):
...         self.ones, self.all = self.ones + outcome, self.all + 1.0
>>> host = Host(ShareOfOnes)
>>> forecast = host.predict(0.83)
>>> host.update(forecast, 1)
>>> round(host.predict(0.83).probability, 4)
0.6667
"""

from __future__ import annotations

from .host import Host
from .play import Rival
from .ready import READY, Isotonic, RiverSGD, Sigmoid

__all__ = ["READY", "Host", "Isotonic", "Rival", "RiverSGD", "Sigmoid"]
