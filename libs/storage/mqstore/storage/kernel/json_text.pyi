"""Limits of JSON text."""

def count_json_values(text: bytes, most: int) -> int:
    """An upper bound of the array items and object members of a JSON text: the commas outside of
    strings, plus one.

    Items without a comma are not counted. Stops above ``most``. Releases the GIL for a text of
    64 KiB or more.
    """

def has_distinct_members(text: bytes) -> bool:
    """Whether no object of a valid JSON text has a member twice.

    False also for a text that needs a closer look: with escapes in a name, deep objects or many
    members.
    """
