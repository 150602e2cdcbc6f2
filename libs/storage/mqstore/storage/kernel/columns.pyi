"""Records to columns."""

from collections.abc import Iterable, Sequence

from mqstore.storage.kernel.read import Defect

class RecordColumns:
    """Rows of whole records, as columns in Arrow's layout. For one thread at a time.

    Columns by name: ``physical_offset``, ``queue_offset``, ``prepared_transaction_offset`` of 64
    bits; ``size``, ``queue_id``, ``flag``, ``sys_flag``, ``body_crc``, ``reconsume_times``,
    ``version`` (1, 2) of 32 bits; ``born_time``, ``store_time`` in microseconds, null outside of
    the years 1 to 9999; ``topic``, ``born_host``, ``store_host`` (``address:port``), ``tags``,
    ``keys``, ``uniq_key``, ``real_topic`` as UTF-8, the last four null where a record has no such
    property; ``body``; ``properties``, a map. Text is decoded as Java does, properties as
    ``properties.decode`` does.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        topics: Iterable[bytes] | None = None,
        lowest: int = 0,
        since_ms: int = ...,
        until_ms: int = ...,
    ) -> None:
        """Select records of these topics, at or above physical offset ``lowest``, and stored from
        ``since_ms`` to before ``until_ms``. Raises KeyError for an unknown column."""

    @property
    def rows(self) -> int:
        """Number of rows."""
    def add(
        self,
        view: memoryview | bytes | bytearray,
        position: int,
        stop: int,
        base: int,
        max_rows: int,
    ) -> tuple[Defect, int, int]:
        """Read the records that begin in ``view`` from ``position`` to before ``stop``; ``base`` is
        the physical offset of ``view[0]``. Checksums are compared.

        Returns (defect, size, position): the end of the walk, at a defect or BLANK (its size where
        its parts add up, else 0), at ``stop`` or with ``max_rows`` rows (NONE). Raises
        OverflowError for more than 2 GiB of one column.
        """

    def take_tombstones(self) -> list[tuple[int, int]]:
        """Physical offset and size of the passed tombstones, which are no rows."""

    def take(self) -> list[tuple[bytes | None, ...]]:
        """Remove and return the rows, as one tuple per column.

        The tuple is its validity (None without nulls; a bit a row), then numbers; or ends and
        bytes; or, of a map, ends of rows, ends and bytes of names, ends and bytes of values. Native
        byte order, ends of 32 bits.
        """
