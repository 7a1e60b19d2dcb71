"""Whether the compiled core was made from the kernels that are there to be read."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

_KERNEL = re.compile(r"^@(?:kernel|large_kernel|entry|loop)$|\(NamedTuple\):$", re.MULTILINE)
_CONSTANT = re.compile(r"^_?[A-Z].* = .*(?:\n[ )\]}].*)*$", re.MULTILINE)  # with the lines that it goes on over


def digest(text: str) -> str:
    """A hash of what the compiler sees of a file: its kernels, structs and constants."""
    blocks = text.split("\n\n\n")  # two empty lines stand between definitions
    seen = [block for block in blocks if _KERNEL.search(block)] + _CONSTANT.findall(text)
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()[:16]


def check_fresh(package: Path, sources: dict[str, str]) -> None:
    """Raise if a kernel of a checkout was edited after the core was compiled: what ran would not be what one reads."""
    if not (package.parents[1] / "compiling").is_dir():
        return  # an installed package, whose files nobody edits
    for name, made_from in sources.items():
        path = package / name
        if not path.exists() or digest(path.read_text(encoding="utf-8")) != made_from:
            raise ImportError(f"{name} has changed since calibeat's core was compiled: run `make build`")
