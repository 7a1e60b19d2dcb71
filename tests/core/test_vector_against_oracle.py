"""MULTI against its oracle, to 1e-12: random, drifting, adversarial, late and edge streams, from 2 to 1000 classes."""

from __future__ import annotations

import multi_oracle
import multi_streams
import numpy as np
import pytest
from multi_streams import calibrate

SIZES = {2: 150, 3: 300, 10: 200, 64: 60, 65: 60, 1000: 6}


def compare(ours: tuple[np.ndarray, np.ndarray], theirs: tuple[np.ndarray, np.ndarray], tolerance: float) -> None:
    np.testing.assert_allclose(ours[0], theirs[0], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(ours[1][1:], theirs[1][1:], rtol=tolerance, atol=tolerance)
    assert (ours[0] > 0.0).all()
    assert np.abs(ours[0].sum(axis=1) - 1.0).max() <= 1e-12


@pytest.mark.parametrize("K", SIZES)
@pytest.mark.parametrize("name", multi_streams.STREAMS)
def test_it_is_the_oracle(name: str, K: int) -> None:
    scores, labels = multi_streams.STREAMS[name](SIZES[K], K)
    compare(calibrate(scores, labels), multi_oracle.calibrate(scores, labels), 1e-12)


@pytest.mark.parametrize("K", [2, 3, 10, 64, 65])
@pytest.mark.parametrize("kind", ["fixed", "reordered"])
@pytest.mark.parametrize("name", multi_streams.STREAMS)
def test_late_labels_are_those_of_the_oracle(name: str, kind: str, K: int) -> None:
    scores, labels = multi_streams.STREAMS[name](SIZES[K], K)
    due = multi_streams.delays(len(labels), kind)
    compare(calibrate(scores, labels, due), multi_oracle.calibrate(scores, labels, due), 1e-12)
