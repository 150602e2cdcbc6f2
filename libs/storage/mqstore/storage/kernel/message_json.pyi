"""Messages as JSON, as query shows them."""

from collections.abc import Callable, Iterable
from typing import final

from mqstore.storage._kernel import R
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

def leased_json(
    form: MessageForm,
    lots: Iterable[tuple[list[R], list[int], bytes, bytes, bytes]],
    before: bytes,
    behind: bytes,
) -> bytes | None:
    """Encode leased messages as ``LeasedMessage`` structs of the REST contract, with commas between
    them, between two texts; None as ``message_json``.

    Each lot has records, and how often each was delivered beside its reconsumeTimes; the JSON of
    its receipts before and behind the offset; and the members behind the attempt, with the
    brace."""
