"""Stubs of ``_kernel``, one for each of its source files.

Import from ``_kernel``: no module of this folder exists at run time.
"""
