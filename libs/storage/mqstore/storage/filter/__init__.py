"""Filter expressions (SQL92) of pulls and subscriptions, as RocketMQ evaluates them.

Public: compiling an expression, and finding one in the cache. Used by query and
``mqstore.service``.
"""

from mqstore.storage.filter.expression import Filter, compile_expression, find_compiled

__all__ = [
    "Filter",
    "compile_expression",
    "find_compiled",
]
