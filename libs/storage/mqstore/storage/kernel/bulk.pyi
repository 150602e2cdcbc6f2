"""Look-ups of many records, in one call."""

from mqstore.storage._kernel import R
from mqstore.storage.kernel.lookup import LogWindow

def records_by_id(
    window: LogWindow, kind: type[R], texts: list[str], max_bytes: int
) -> list[R | None]:
    """Read the records of offset message ids, each as ``LogWindow.record_by_id``.

    The list has fewer records than ids where a further one would make them more than ``max_bytes``
    together; the first one excepted. The GIL is released while pages are read from the disk.
    """
