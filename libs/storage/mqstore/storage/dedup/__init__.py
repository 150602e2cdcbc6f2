"""Putting a message once, however often its client sends it."""
