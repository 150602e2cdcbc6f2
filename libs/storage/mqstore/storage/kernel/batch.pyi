"""The rules for names in a batch in RocketMQ's encoding."""

from collections.abc import Sequence

class NameRules:
    """The properties that producers may give, as far as the kernel checks them. Immutable."""

    def __init__(self, free: Sequence[bytes], refused: Sequence[bytes]) -> None:
        """Names in ``free`` need no check, those in ``refused`` are not plain; any other must be
        printable ASCII, as must its value."""
