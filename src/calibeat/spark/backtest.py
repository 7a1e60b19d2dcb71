"""later"""


def backtest() -> None: ...
