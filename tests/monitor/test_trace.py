"""The trace of a monitor is what the monitor itself says on the way."""

from __future__ import annotations

import numpy as np
import pytest
from monitors import same, small, stream

from calibeat import InvalidInput, Monitor
from calibeat.monitor.monitor import trace


def test_a_trace_notes_the_numbers_of_the_monitor() -> None:
    p, y, s = stream(500)
    watched, alone = small(), small()
    went = trace(watched, p, y, s, points=7)
    alone.run(p, y, s)
    same(watched, alone)
    assert list(went.alarms) == alone.alarms
    assert went.level[-1] == alone.level and went.evidence[-1] == alone.evidence
    assert (went.gain[-1], went.gain_low[-1], went.gain_high[-1]) == tuple(alone.gain)
    for alarm in went.alarms:
        np.testing.assert_array_equal(went.level[went.at == alarm.at][:2], [1.0, 0.0])
    assert (np.diff(went.at) >= 0).all() and went.at[-1] == 500


def test_more_points_than_outcomes_and_no_scores() -> None:
    p, y, _ = stream(5)
    went = trace(Monitor(), p, y, points=300)
    assert went.at.tolist() == [1, 2, 3, 4, 5]
    assert np.isnan(went.gain).all()


def test_bad_input_is_refused_before_the_monitor_reads() -> None:
    monitor = Monitor()
    with pytest.raises(InvalidInput, match="same length"):
        trace(monitor, [0.5], [1, 0])
    with pytest.raises(InvalidInput, match="points must be"):
        trace(monitor, [0.5], [1], points=0)
    assert monitor.outcomes == 0
