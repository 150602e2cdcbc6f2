"""Files that stay at their paths."""

from typing import final

@final
class PlaceWatch:
    """Compares the files at some paths with those that were there. Any thread."""

    def __init__(self, places: list[tuple[bytes, tuple[int, int]]]) -> None:
        """Paths, each with volume and number of its file or directory."""
    def is_same(self) -> bool:
        """Whether each path still names its file; False also where one cannot be found."""
