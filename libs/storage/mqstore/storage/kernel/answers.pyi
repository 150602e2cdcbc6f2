"""Placements as JSON text."""

from collections.abc import Callable, Container

from mqstore.storage.kernel.write import Placement

def placements_json(
    placements: list[Placement],
    keys: list[str],
    shard: int,
    repeats: Container[int],
    quote: Callable[[str], bytes],
) -> bytes:
    """A JSON array of where messages stand, as ``mqstore.writer.models.Placed`` says it.

    ``keys`` are their unique keys, ``repeats`` the numbers of those that get ``"repeat":true``.
    ``quote`` says a key in JSON that is not printable ASCII as it stands. ValueError when there are
    not as many keys as placements; raises what ``quote`` raises.
    """
