"""Limits of JSON text."""

def count_json_values(text: bytes, most: int) -> int:
    """An upper bound of the array items and object members of a JSON text: the commas outside of
    strings, plus one.

    Items without a comma are not counted. Stops above ``most``. Releases the GIL.
    """
