"""Messages as JSON, as query shows them."""

from collections.abc import Callable, Iterable
from typing import Any, final

from mqstore.storage._kernel import R

@final
class MessageForm:
    """How messages are shown. For one thread at a time."""

    def __init__(
        self,
        shard: int,
        kind: type[R],
        *,
        bodies: bool | None,
        flag_names: Callable[[int], bytes],
        host_text: Callable[[Any], str],
        encode_rest: Callable[[R], bytes],
    ) -> None:
        """``bodies``: whether bodies are shown, as text where they are UTF-8, else as base64; None
        where ``encode_rest`` shows them. It returns the fields behind bodySize as an object in
        JSON, and is called also for compressed bodies, and for a record that is not of ``kind``.
        ``flag_names`` returns the names of a SYSFLAG's bits, as a list in JSON; ``host_text``
        returns a host of IPv6 as text."""

def messages_json(
    form: MessageForm, records: list[R], before: bytes = b"", behind: bytes = b""
) -> bytes:
    """Encode records as ``Message`` of the REST contract, with commas between them, between two
    texts. Raises ValueError for a record without its body."""

def leased_json(
    form: MessageForm,
    batches: Iterable[tuple[list[R], list[int], bytes, bytes, bytes]],
    before: bytes,
    behind: bytes,
) -> bytes:
    """Encode leased messages as ``LeasedMessage`` of the REST contract, as ``messages_json``.

    Each batch has records, and how often each was delivered beside its reconsumeTimes; the JSON of
    its receipts before and behind the offset; and the members behind the attempt, with the
    brace."""
