"""Resources that a process takes from the system."""

from __future__ import annotations

import gc

from mqstore.service.process import freeze_heap


def test_the_collector_looks_no_more_at_what_is_there() -> None:
    """A full round over all of a service holds its event loop up for 50 ms."""
    there = len(gc.get_objects())
    try:
        freeze_heap()
        assert gc.get_freeze_count() > there / 2
        assert len(gc.get_objects()) < there / 10
    finally:
        gc.unfreeze()
