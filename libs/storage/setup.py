"""Builds the kernel module; everything else is in pyproject.toml.

The system's C compiler is used when there is one, else the one in the ``ziglang`` wheel.
"""

import importlib.util
import os
import shutil
import sys
import sysconfig
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup


def choose_compiler() -> None:
    configured = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    if shutil.which(configured.split()[0]):
        return
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            use_compiler(name)
            return
    if importlib.util.find_spec("ziglang") is None:
        raise SystemExit("no C compiler found: install gcc or clang, or `pip install ziglang`")
    use_compiler(f"{sys.executable} -m ziglang cc")


def use_compiler(command: str) -> None:
    os.environ["CC"] = command
    os.environ["LDSHARED"] = f"{command} -shared"


def check_headers() -> None:
    folders = {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}
    if not any((Path(folder) / "Python.h").is_file() for folder in folders if folder):
        raise SystemExit(
            "Python.h is missing: install Python's headers"
            " (python3-dev on Debian and Ubuntu, python3-devel on Fedora)"
        )


choose_compiler()
if "build_ext" in sys.argv or any("wheel" in word for word in sys.argv):
    check_headers()

setup(
    ext_modules=cythonize(
        [
            Extension(
                "mqstore.storage._kernel",
                ["mqstore/storage/_kernel.pyx"],
                depends=["mqstore/storage/_kernel.h"],
                # The last option of its kind counts: one of CFLAGS before ours. Symbols for a
                # debugger, which Python's own options include, take a third of the time.
                extra_compile_args=["-O3", "-g0", *os.environ.get("CFLAGS", "").split()],
            )
        ],
        language_level=3,
    )
)
