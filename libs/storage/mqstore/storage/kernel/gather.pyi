"""Items of the index, gathered in the order of the log."""

from collections.abc import Iterable

from mqstore.storage.kernel.dispatch import Stop

class IndexItems:
    """Index items of records in the order of the log, set apart by ranges of slots.

    An item takes 24 bytes of this machine's order: its number among all of them 4, hash 4,
    physical offset 8, store time in ms 8. For one thread.
    """

    records: int
    """Added since the last ``take``, ..."""
    items: int
    """... with so many items, ..."""
    before_last: int
    """... of which so many are of the records before the last one."""

    def __init__(self, parts: int, slots: int, index_tags: bool) -> None:
        """Of ``slots`` slots the part ``slot * parts // slots`` is each item's."""

    def add(
        self, view: memoryview, position: int, stop: int, base: int, max_records: int
    ) -> tuple[Stop, int]:
        """Add the records that begin in ``view[position:stop]``, as ``dispatch_run`` indexes them.

        ``base`` is the physical offset of ``view[0]``; the last record may end behind ``stop``.
        Returns why it came back (LIMIT: there are ``max_records``) and the position of the first
        record that was not added. Body CRCs are not judged.
        """

    def add_record(self, hashes: Iterable[int], physical_offset: int, store_timestamp: int) -> None:
        """Add one record with its index hashes."""

    def take(self) -> list[bytes]:
        """The items by part; then there are none."""

def index_chain(
    items: bytes,
    start: int,
    file: memoryview,
    layout: tuple[int, int],
    slots_of_part: tuple[int, int],
    chunk: tuple[int, int, int],
    first: int,
    begin_ms: int,
    carried_ms: int,
) -> tuple[int, int]:
    """Put items of one part of ``IndexItems`` into an index file, in the slots of that part only.

    ``layout`` is the file's slots and entries, ``slots_of_part`` the first slot and the one behind
    the last, ``chunk`` the least physical offset, the one behind the greatest, and how many items
    there are in all parts. ``first`` is the number in the file that item 0 of all parts has or
    would have; items from byte ``start`` on are put up to the last that the file has room for.
    ``begin_ms`` is the store time of the file's item 1, ``carried_ms`` that of the last item of
    the file before, 0 without one. The header is left alone. Returns (the first byte that was not
    used, slots that were empty). ValueError for an item outside of all that, or out of its order.
    The GIL is released; what is written stays within the file, whatever the items say.
    """

def item_at(items: bytes, number: int) -> tuple[int, int] | None:
    """(physical offset, store time in ms) of an item of ``IndexItems.take``."""
