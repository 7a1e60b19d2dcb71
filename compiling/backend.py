"""The build backend: setuptools, and a C compiler from the package index where the machine has none."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403 - all hooks but the two below

ZIG = "ziglang>=0.13"


def has_compiler() -> bool:
    """Whether the compiler that Python asks for, or the one named by CC, can be started."""
    if sys.platform == "win32":
        return True  # setuptools looks for it
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return shutil.which(shlex.split(command)[0]) is not None


def get_requires_for_build_wheel(settings: Any = None) -> list[str]:
    """What to install before the wheel is built."""
    compiler = [] if has_compiler() else [ZIG]  # asked first: setup.py, which runs next, sets CC
    return build_meta.get_requires_for_build_wheel(settings) + compiler


def get_requires_for_build_editable(settings: Any = None) -> list[str]:
    """The same for an editable install."""
    compiler = [] if has_compiler() else [ZIG]
    return build_meta.get_requires_for_build_editable(settings) + compiler
