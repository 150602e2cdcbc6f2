"""The condition of reads: reply once the copy that is read has what was stored before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from mqstore.wire.produce import MessagePlace

AT_LEAST: Final = "x-mqstore-at-least"


class ReadConditions:
    """A client, or a view of it, whose reads may have a condition."""

    _conditions: Mapping[str, str] = MappingProxyType({})
    """Headers of all requests."""

    def reading_after(self, stored: Iterable[MessagePlace]) -> Self:
        """Return a view of this client, over the same connections, whose reads see these messages.

        query replies once its copy of their shards has them, and with ProblemError
        `offset-not-reached` after a few seconds without them. Close the client, not the view.
        """
        ends: dict[int, int] = {}
        for each in stored:
            ends[each.shard] = max(ends.get(each.shard, 0), each.physical_offset + each.size)
        view = copy(self)
        value = ", ".join(f"{shard}:{end}" for shard, end in sorted(ends.items()))
        view._conditions = MappingProxyType({AT_LEAST: value} if ends else {})
        return view
