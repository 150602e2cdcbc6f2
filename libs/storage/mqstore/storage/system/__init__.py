"""The seams in production, and a copy-on-write file system for read-only work."""
