"""Segments that expire, exported to Parquet by topic and day before retention takes them.

``export`` is what a task does with one segment: read, write, read back (``digest``); it knows no
Spark. ``keeper`` records with the store how far the archive is, which retention waits for; ``run``
puts both together. Nothing is seen under its name before it was read back whole.
"""
