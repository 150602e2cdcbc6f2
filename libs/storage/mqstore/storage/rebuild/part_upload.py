"""The upload of one part's items from the job into the staged files."""

from __future__ import annotations

from threading import Lock

from mqstore.storage.errors import IndexRebuildInvalid, IndexRebuildUnknown
from mqstore.storage.index.build import ITEM_SIZE, PartBuilder
from mqstore.storage.rebuild.values import PartSums


class PartUpload:
    """One thread adds items; any thread may ``stop`` it, after which no item reaches the files."""

    def __init__(self, number: int, builder: PartBuilder) -> None:
        """Call ``clear`` first when the part was sent before."""
        self.number = number
        self.items = 0
        self._builder = builder
        self._lock = Lock()
        self._is_open = True

    def clear(self) -> None:
        """Empty the part's slots. Raises IndexRebuildUnknown once it was stopped, OSError."""
        with self._lock:
            self._require_open()
            self._builder.clear()

    def add(self, start: int, items: bytes) -> None:
        """Add items of the chunk that begins at a physical offset, as ``PartBuilder.add``.

        Raises IndexRebuildInvalid, IndexRebuildUnknown once it was stopped, OSError.
        """
        with self._lock:
            self._require_open()
            try:
                self._builder.add(start, items)
            except ValueError as error:
                raise IndexRebuildInvalid(
                    f"part {self.number}: {error}; send it again from its begin"
                ) from None
            self.items += len(items) // ITEM_SIZE

    def finish(self, items: int) -> PartSums:
        """Finish the part after ``items`` items.

        Raises IndexRebuildInvalid, IndexRebuildUnknown.
        """
        with self._lock:
            self._require_open()
            if items != self.items:
                raise IndexRebuildInvalid(
                    f"part {self.number}: {self.items} items came, of {items}; send it again"
                )
            self._is_open = False
            self.built = self._builder.close()
            return PartSums(items=self.items, slots=sum(self.built.slots.values()))

    def stop(self) -> None:
        """Stop the upload. Idempotent."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                self._builder.close()

    def _require_open(self) -> None:
        if not self._is_open:
            raise IndexRebuildUnknown(
                f"part {self.number}: the rebuild has ended, or the part is sent once more"
            )
