"""Messages as JSON, as query shows them."""

from collections.abc import Callable, Sequence
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

def leased_json(
    form: MessageForm,
    delivered: Sequence[tuple[StoredRecord, str, int, str]],
    ends: dict[str, bytes],
) -> bytes | None:
    """Encode leased messages as a list of ``LeasedMessage`` of the REST contract; None as
    ``message_json``.

    Each has record, receipt, attempt and source topic; ``ends`` has the members behind the attempt
    and the closing brace, by source topic. Raises KeyError for a source topic without an end."""
