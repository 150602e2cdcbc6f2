"""Builds the kernel module; everything else is in pyproject.toml."""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        [Extension("mqstore.storage._kernel", ["mqstore/storage/_kernel.pyx"], extra_compile_args=["-O3"])],
        language_level=3,
    )
)
