from __future__ import annotations

from mqstore.storage.layout import PAGE_SIZE
from mqstore.storage.mapped.transient_store_pool import TransientStorePool
from mqstore.storage.mapped.warm_up import MemoryLocks
from mqstore.storage.system.posix_files import PosixFileSystem
from tests.unit.storage.memory import locked_kib

SIZE = 4 * PAGE_SIZE


def make(count: int = 3) -> TransientStorePool:
    return TransientStorePool(PosixFileSystem(), SIZE, count, MemoryLocks())


def test_buffers_are_locked_until_the_pool_is_closed() -> None:
    before = locked_kib()
    pool = make(3)
    assert locked_kib() == before + 3 * (SIZE >> 10)
    pool.close()
    assert locked_kib() == before
    pool.close()


def test_a_borrowed_buffer_is_readable_after_the_pool_is_closed() -> None:
    before = locked_kib()
    pool = make(1)
    buffer = pool.borrow()
    assert buffer is not None
    pool.close()
    assert locked_kib() == before
    assert bytes(buffer) == bytes(SIZE)


def test_every_buffer_is_lent_once_and_then_there_is_none() -> None:
    pool = make(3)
    lent = [pool.borrow() for _ in range(3)]
    for number, buffer in enumerate(lent):
        assert buffer is not None
        assert len(buffer) == SIZE
        buffer[0] = number
    assert [buffer[0] for buffer in lent if buffer is not None] == [0, 1, 2]
    assert pool.available == 0
    assert pool.borrow() is None
    pool.close()


def test_the_buffer_that_came_back_last_is_lent_first() -> None:
    pool = make(3)
    first, second = pool.borrow(), pool.borrow()
    assert first is not None
    assert second is not None
    pool.give_back(second)
    pool.give_back(first)
    assert pool.available == 3
    assert pool.borrow() is first
    pool.close()
