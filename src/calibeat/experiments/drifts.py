"""The drifts of the paper's Section 1, each a one-dimensional x with a model fitted on its first thousand events."""

import numpy as np

from calibeat.errors import MissingExtra

from .stream import FloatArray, Stream

T = 6000
T_TRAIN = 1000
BLOCK = 500


def covariate_drift(seed: int = 0) -> Stream:
    """X_t ~ N((t-1)/250, 4), Pr(Y_t = 1 | X_t) = 0.9 if floor(X_t/5) is odd, else 0.1; t = 1001..6000 is replayed.

    The truth never changes, but X walks out of what the model has seen. Raises `MissingExtra` without scikit-learn.
    """
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        raise MissingExtra("the model needs scikit-learn of the extra 'demo': pip install 'calibeat[demo]'") from error
    rng = np.random.default_rng(seed)
    x = rng.normal(np.arange(T) / 250, 2.0)
    y = (rng.random(T) < np.where(np.floor(x / 5) % 2 == 1, 0.9, 0.1)).astype(np.float64)
    model = LogisticRegression(max_iter=1000).fit(sinusoids(x[:T_TRAIN]), y[:T_TRAIN])
    starts = range(T_TRAIN, T, BLOCK)
    return Stream(
        name="Covariate drift, section 1 of the paper",
        event="the outcome is 1",
        scores=np.asarray(model.predict_proba(sinusoids(x[T_TRAIN:]))[:, 1], dtype=np.float64),
        outcomes=y[T_TRAIN:],
        due=None,
        group=np.repeat(np.arange(len(starts)), BLOCK),
        group_names=tuple(f"{start + 1}-{start + BLOCK}" for start in starts),
        group_adjective="blockwise",
        time_label="event t",
    )


def sinusoids(x: FloatArray) -> FloatArray:
    """The paper's 48 features of x: sin(x/freq + translation), freq in 1..6, translation in 0, pi/4, ..., 7 pi/4."""
    freq = np.arange(1, 7)[:, None]
    translation = np.arange(8) * np.pi / 4
    return np.sin(x[:, None, None] / freq + translation).reshape(len(x), -1)
