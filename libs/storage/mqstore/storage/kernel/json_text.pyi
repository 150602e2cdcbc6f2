"""Limits of JSON text."""

def count_json_values(text: bytes, most: int) -> int:
    """One more than the commas outside of strings: the array items and object members of a JSON
    text, at most, but for those that are the only one of theirs. Stops above ``most``. Releases the
    GIL."""
