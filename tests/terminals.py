"""A file that says it is a terminal, as commands see one that a person looks at."""

from __future__ import annotations

import io


class Terminal(io.StringIO):
    """What is written to it can be read back with `getvalue`."""

    def isatty(self) -> bool:
        return True
