"""``Busiest`` bounds the series of a counter: the busiest have a name, the others are one sum."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from heapq import nlargest, nsmallest
from typing import Final, Generic, TypeVar

FACTOR: Final = 2
"""A key takes the name of another when it counted more than this many times as much. Two keys that
count alike do not take turns: each turn would begin their series anew."""

K = TypeVar("K", bound=Hashable)
Values = tuple[int, ...]


class Busiest(Generic[K]):
    """Chooses keys by their first count. For one thread at a time.

    Every series only grows while it is exported, the sum of the others always: counts of a key
    that lost its name are not counted again in the sum.
    """

    def __init__(self, maximum: int, rest: Callable[[K], K]) -> None:
        """Name at most ``maximum`` keys; ``rest`` returns the key of the sum that a key is in."""
        self._maximum = maximum
        self._rest = rest
        self._named: dict[K, Values] = {}
        """Keys with a name, and what each had counted before."""
        self._shown: defaultdict[K, list[int]] = defaultdict(list)
        """By key of a sum: counts that keys without a name had shown while they had one."""

    def select(self, counts: Mapping[K, Sequence[int]]) -> dict[K, Values]:
        """Return the counts to export. ``counts`` never lose a key, and never decrease."""
        now = {key: tuple(values) for key, values in list(counts.items())}
        self._choose(now)
        named = self._named
        found = {key: _combine(now[key], before, -1) for key, before in named.items()}
        parts: defaultdict[K, list[Values]] = defaultdict(list)
        for key, values in now.items():
            parts[self._rest(key)].append(named.get(key, values))
        for rest, each in parts.items():
            values = _combine(
                [sum(column) for column in zip(*each, strict=True)], self._shown[rest], -1
            )
            if any(values):
                found[rest] = values
        return found

    def _choose(self, now: Mapping[K, Values]) -> None:
        named, rest = self._named, self._rest
        others = [key for key in now if key not in named and key != rest(key)]
        free = self._maximum - len(named)
        for key in nlargest(free, others, key=lambda key: now[key][0]) if free else ():
            # A key that was never summed begins with all its counts.
            named[key] = (0,) * len(now[key])
        if not named:
            return
        least = FACTOR * min(now[key][0] for key in named)
        busier = [key for key in others if now[key][0] > least and key not in named]
        busiest = nlargest(len(named), busier, key=lambda key: now[key][0])
        idlest = nsmallest(len(busiest), named, key=lambda key: now[key][0])
        for old, new in zip(idlest, busiest, strict=True):
            if now[new][0] <= FACTOR * now[old][0]:
                break
            self._replace(old, new, now)

    def _replace(self, old: K, new: K, now: Mapping[K, Values]) -> None:
        shown = _combine(now[old], self._named.pop(old), -1)
        rest = self._rest(old)
        self._shown[rest] = list(_combine(shown, self._shown[rest], 1))
        self._named[new] = now[new]


def _combine(values: Sequence[int], others: Sequence[int], sign: int) -> Values:
    """``values`` plus or minus ``others``, which may be empty."""
    if not others:
        return tuple(values)
    return tuple([a + sign * b for a, b in zip(values, others, strict=True)])
