"""The seams in production, and the copy-on-write file system of everything that only looks."""
