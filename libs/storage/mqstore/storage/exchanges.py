"""Requests under a head that a client repeats: the body of each, its reply, and counts of values.

Used by services; no part of it knows what a request does.
"""

from mqstore.storage._kernel import Exchange, RepeatedHead, RequestIds, ValueCounts

__all__ = ["Exchange", "RepeatedHead", "RequestIds", "ValueCounts"]
