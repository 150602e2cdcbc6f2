"""The attempts of one request. Does no input or output."""

from __future__ import annotations

from typing import Generic

from mqstore.client.errors import ClientError
from mqstore.client.requests import Answer, Call
from mqstore.client.retries import RetryBudget, may_be_stored, writable_shard


class Attempts(Generic[Answer]):
    """The attempts of one call, all by one policy (``RetryBudget``).

    A call that may not be repeated is retried only while no attempt can have taken effect. Keys are
    generated anew until an attempt may have stored its messages.
    """

    def __init__(self, call: Call[Answer], shard: int | None, patience_s: float) -> None:
        """``patience_s`` is that of the client, for calls without one."""
        self.call = call if call.with_keys is None else call.with_keys(shard)
        self._with_keys = call.with_keys
        self._may_be_repeated = call.patience_s > 0 or call.may_be_repeated
        self._budget = RetryBudget(call.patience_s or patience_s)

    def pause_s(self, error: ClientError) -> float:
        """Return the seconds until the next attempt after ``error``; raise it if there is none."""
        may_have_effect = may_be_stored(error)
        if may_have_effect and not self._may_be_repeated:
            raise error
        pause_s = self._budget.pause_s(error)
        if may_have_effect:
            self._with_keys = None
        elif self._with_keys is not None:
            self.call = self._with_keys(writable_shard(error))
        return pause_s
