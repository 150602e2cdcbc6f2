"""The commit log: append, the rules of a put, flush and group commit."""
