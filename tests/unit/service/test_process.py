"""Resources that a process takes from the system."""

from __future__ import annotations

import gc

from mqstore.service.process import freeze_heap


def test_the_collector_looks_no_more_at_what_is_there() -> None:
    """A full round over all of a service holds its event loop up for 50 ms."""
    objects: list[list[int]] = [[] for _ in range(100_000)]
    freeze_heap()  # for good: each further collection would walk through all that pytest keeps
    assert gc.get_freeze_count() > len(objects)
    assert len(gc.get_objects()) < len(objects) / 10
