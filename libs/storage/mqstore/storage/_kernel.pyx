# cython: language_level=3
"""Placeholder until the kernel lands (helper A replaces this file)."""
