"""Messages as JSON, as query shows them."""

from collections.abc import Callable
from typing import final

from mqstore.storage.kernel.read import StoredRecord

@final
class MessageForm:
    """How messages are shown. For one thread at a time."""

    def __init__(
        self, shard: int, *, with_bodies: bool, flag_names: Callable[[int], bytes]
    ) -> None:
        """``flag_names`` returns the names of a SYSFLAG's bits, as a list in JSON."""

def message_json(form: MessageForm, record: StoredRecord) -> bytes | None:
    """Encode a record as the ``Message`` of the REST contract; its body as text where it is UTF-8,
    else as base64.

    None for a record that is not plain: damaged, compressed, with a host of IPv6, with properties
    that are malformed UTF-8, repeat a name or are more than 64.
    """
