"""Deduplication: a message that its client sends several times is stored once."""
