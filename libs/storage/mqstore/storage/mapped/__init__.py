"""Mapped files, runs of them, and files made ahead of need."""
