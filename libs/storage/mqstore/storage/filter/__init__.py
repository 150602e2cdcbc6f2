"""Filter expressions (SQL92) of pulls and subscriptions, as RocketMQ evaluates them.

Public: an expression compiled, or found compiled. Used by query and ``mqstore.service``.
"""

from mqstore.storage.filter.expression import Filter, compile_expression
from mqstore.storage.filter.expression import compiled as find_compiled

__all__ = [
    "Filter",
    "compile_expression",
    "find_compiled",
]
