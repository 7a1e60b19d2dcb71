"""The state of a stream in one word, and what to look at first.

A stream's own row gives its base: how it is set, and how much it has seen. Alarms that are open and corrections that
wait give its note. `state_of` puts the two together; the store counts, lists and filters by the same two.
"""

from __future__ import annotations

from .watch import RAW_SCORE

ENOUGH_OUTCOMES = 100  # below these, a calibration error is mostly luck
ENOUGH_TO_MISS = 20  # forecasts without a single outcome, after which outcomes are missed

# What was done to a stream, in the words of its mode. A person knows of it, so it is told before anything else.
MODES = ("frozen, passthrough", "frozen", "passthrough", "resuming")
BASES = (*MODES, "good", "no outcomes", "learning")
# Notes, the worst first, causes before what follows from them; the number of a note is its severity. The last one is
# no alarm.
NOTES = ("silent", "no outcomes", "score moved", "drifting", "outcomes late", "correcting")
ALARMED = len(NOTES) - 1  # notes up to this number are open alarms
CORRECTING = len(NOTES)
STATES = tuple(dict.fromkeys((*NOTES, *BASES, "no monitor")))
NEED_A_PERSON = NOTES[:ALARMED]

NEVER = "never an outcome"
# The beginning of what an alarm is about -> what has happened; what to look at first. All others are about calibration:
# see `alarms.LOOK_FIRST`.
WORDS: dict[str, tuple[str, str]] = {
    "no forecasts": ("no forecast has come", "whoever sends the scores; is it a holiday?"),
    "no outcomes": ("no outcome has come", "the pipeline of outcomes: does it still send them, under these ids?"),
    NEVER: ("no outcome has ever come", "whether anybody sends outcomes, under the same stream and ids"),
    "score ": ("the score is not what it was", "the unit, the version and the inputs of the model"),
    "outcomes later": ("outcomes come later than they used to", "the pipeline of outcomes"),
}


def severity_sql(what: str) -> str:
    """The severity of an alarm, of the column that says what it is about."""
    return (
        f"CASE WHEN {what} = 'no forecasts' THEN 1 WHEN {what} IN ('no outcomes', '{NEVER}') THEN 2 "
        f"WHEN substr({what}, 1, 6) = 'score ' THEN 3 WHEN {what} = 'outcomes later' THEN 5 ELSE 4 END"
    )


def is_about_us(what: str) -> str:
    """Whether an alarm is about what the service tells. The raw score is somebody else's, and may never have fitted."""
    return f"substr({what}, 1, {len(RAW_SCORE)}) <> '{RAW_SCORE}'"


def base_sql(of: str) -> str:
    """The base of a stream, of the columns of its row, which begin with `of`."""
    return (
        f"CASE WHEN ({of}mode & 3) = 3 THEN 'frozen, passthrough' WHEN ({of}mode & 1) = 1 THEN 'frozen' "
        f"WHEN ({of}mode & 2) = 2 THEN 'passthrough' WHEN ({of}mode & 12) <> 0 THEN 'resuming' "
        f"WHEN {of}outcomes >= {ENOUGH_OUTCOMES} THEN 'good' WHEN {of}outcomes = 0 AND {of}held = 0 "
        f"AND {of}events >= {ENOUGH_TO_MISS} THEN 'no outcomes' ELSE 'learning' END"
    )


def state_sql(of: str, severity: str, *, is_monitored: bool) -> str:
    """`state_of`, of the columns of a stream's row and of the severity of its note."""
    base, modes = base_sql(of), ", ".join(f"'{mode}'" for mode in MODES)
    notes = " ".join(f"WHEN {severity} = {number} THEN '{note}'" for number, note in enumerate(NOTES, 1))
    unwatched = "" if is_monitored else f"WHEN {base} = 'good' THEN 'no monitor' "
    return f"CASE WHEN {base} IN ({modes}) THEN {base} {notes} {unwatched}ELSE {base} END"


def state_of(base: str, severity: int | None, *, is_monitored: bool) -> str:
    """The state of a stream.

    >>> state_of("good", None, is_monitored=True), state_of("good", None, is_monitored=False)
    ('good', 'no monitor')
    >>> state_of("learning", 1, is_monitored=True), state_of("frozen", 1, is_monitored=True)
    ('silent', 'frozen')
    """
    if base in MODES:
        return base
    if severity is not None:
        return NOTES[severity - 1]
    return "no monitor" if base == "good" and not is_monitored else base
