"""The extension modules (docs/compiled.md). Everything else about the package is in pyproject.toml."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path
from threading import Lock

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).parent
PACKAGE = HERE / "src" / "calibeat"
sys.path.insert(0, str(HERE / "compiling"))

from backend import has_compiler  # noqa: E402 - found on the path of the line above
from join_kernels import NotAllowedError, units  # noqa: E402

# The same bits everywhere: nothing is contracted or reordered. -fno-trapping-math says that nobody reads the flags of
# the floating-point unit; without it the four lanes of AUTO do not become a vector.
FLAGS = [
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-g0",
    "-Wno-attributes",
    "-Wno-unused-function",
]
# A spec has 200 bytes and is passed by value. GCC takes such a struct apart into its numbers only if it is allowed to;
# otherwise it copies it for each event, in pieces other than those just written, for which the processor has to wait.
FLAGS += ["--param", "sra-max-scalarization-size-Ospeed=512"]  # Clang ignores it
# All kernels go into the loop that calls them: a call that is not inlined costs more than the arithmetic.
FLAGS += ["-DCYTHON_INLINE=inline __attribute__((always_inline))"]
MICROSOFT = ["/O2", "/fp:precise"]

UNITS = {f"calibeat.{unit.name}": unit for unit in units(HERE / "src")}
TRANSLATING = Lock()  # C compilers run beside each other; Cython is not made for threads


class BuildCore(build_ext):
    """Join the kernels, then let Cython and the C compiler make the modules. An unchanged module is not made again."""

    def finalize_options(self) -> None:
        """Compile on all cores."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self) -> None:
        """Write the joined kernels of each unit beside the module that includes them."""
        try:
            for unit in UNITS.values():
                write_if_other(unit.kernels, unit.text())
        except NotAllowedError as error:
            raise SystemExit(f"a kernel cannot be compiled: {error}") from error
        super().run()

    def build_extension(self, extension: Extension) -> None:
        """Compile, unless it was done before from the same files by the same compiler."""
        microsoft = self.compiler.compiler_type == "msvc"
        if not microsoft and not Path(sysconfig.get_paths()["include"], "Python.h").exists():
            raise SystemExit(
                "calibeat needs the header files of Python to be built: install python3-dev (Debian, Ubuntu) or "
                "python3-devel (Fedora)"
            )
        # For a build with -fsanitize and the like.
        extra, link = (os.environ.get(name, "").split() for name in ("CALIBEAT_CFLAGS", "CALIBEAT_LDFLAGS"))
        extension.extra_compile_args = MICROSOFT if microsoft else [*FLAGS, *extra]
        extension.extra_link_args, extension.libraries = link, [] if microsoft else ["m"]
        target, kept = Path(self.get_ext_fullpath(extension.name)), self._kept(extension)
        if not kept.exists():
            target.unlink(missing_ok=True)  # or an older one made with other flags would be left where it is
            with TRANSLATING:
                extension.sources = cythonize(extension, quiet=True)[0].sources
            super().build_extension(extension)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(target, kept)
        elif not target.exists() or target.read_bytes() != kept.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(kept, target)  # as a new file: setuptools leaves an older one where it is

    def _kept(self, extension: Extension) -> Path:
        """Where the module made from just these files lies, if it was made."""
        whole = hashlib.sha256(repr((sys.version, os.environ.get("CC"), extension.extra_compile_args)).encode())
        unit = UNITS[extension.name]
        for path in [*unit.written, unit.kernels, Path(__file__)]:
            whole.update(path.read_bytes())
        name = f"{unit.name}-{whole.hexdigest()[:16]}{sysconfig.get_config_var('EXT_SUFFIX')}"
        return HERE / "build" / "core" / name


def write_if_other(path: Path, text: str) -> None:
    """Write a file, unless it holds just this: what is made from it is then up to date."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


if not has_compiler():
    zig = f"{shlex.quote(sys.executable)} -m ziglang cc"
    os.environ |= {"CC": zig, "LDSHARED": f"{zig} -shared"}

extensions = [Extension(name, [unit.file.relative_to(HERE).as_posix()]) for name, unit in UNITS.items()]
setup(ext_modules=extensions, cmdclass={"build_ext": BuildCore})
