"""The scrub: reads the log slowly and compares it with its block checksums.

It finds damage before a reader meets it. ``service`` walks the log, ``metadata.changed_bytes``
names the damaged record and field.
"""
