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
    """Format placements as a JSON array of the model ``Placed``.

    ``keys`` are their unique keys, ``repeats`` the numbers of those that get ``"repeat":true``.
    ``quote`` quotes a key in JSON that is not plain printable ASCII. Raises ValueError when there
    are not as many keys as placements, and the errors of ``quote``.
    """
