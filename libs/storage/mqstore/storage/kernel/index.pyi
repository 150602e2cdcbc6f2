"""Entries of one index file."""

def index_put(
    view: memoryview | bytearray,
    slots: int,
    index_num: int,
    key_hash: int,
    physical_offset: int,
    store_timestamp: int,
) -> bool:
    """Insert one entry and update the header as IndexFile.putKey does; False when full.

    ``key_hash`` is ``java_text.index_hash``'s. ValueError when the view is too short for the file.
    """

def index_find(
    view: memoryview | bytes | bytearray,
    slots: int,
    index_num: int,
    key_hash: int,
    begin_ms: int,
    end_ms: int,
    limit: int,
    entry: int = -1,
) -> tuple[list[int], int]:
    """Physical offsets of the entries with this hash and time, newest first, at most ``limit``, and
    the number of the entry where a further call goes on; 0: there are no more.

    The walk begins at the newest entry of the hash's slot, or at ``entry``, which is one of them.
    Times are the entries' own (begin of the file + whole seconds), both ends included; the walk
    ends at the first entry older than ``begin_ms``, as IndexFile.selectPhyOffset's does. Links that
    do not lead to an older entry end it too, so damage cannot make it loop.
    """
