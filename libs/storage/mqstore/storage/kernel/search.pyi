"""Records searched among other bytes."""

from mqstore.storage.kernel.read import Defect

class RecordSearch:
    """Finds whole records in a view, whose bytes stay mapped as long as this object lives.

    All its calls together pass over each byte once, and over up to 2 KiB for each head that looks
    like a record's: also where the heads of many records are in one another's bodies. Not for
    sharing between threads.
    """

    def __init__(self, view: memoryview | bytes | bytearray, base: int, verify_body: bool) -> None:
        """``base`` is the physical offset of the view's first byte."""
    @property
    def checksummed(self) -> int:
        """Number of bytes that checksums passed over."""
    def check(self, position: int, end: int) -> tuple[Defect, int]:
        """Check one record that states its own offset, as ``check_record``."""
    def find(self, position: int, end: int, stop: int = ...) -> int:
        """Find the first position at or after ``position`` with a whole record that states its own
        offset.

        Its PHYSICALOFFSET equals base + position; it begins below ``stop`` (default: anywhere) and
        ends at or below ``end``. -1 when there is none. Releases the GIL, and handles signals at
        least every 16 MiB.
        """

def find_record(
    view: memoryview | bytes | bytearray,
    position: int,
    end: int,
    base: int,
    verify_body: bool,
    stop: int = ...,
) -> int:
    """Call ``find`` of a new ``RecordSearch``: for one search of these bytes, not for many."""
