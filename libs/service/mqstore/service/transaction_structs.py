"""Transactions in hot routes: msgspec structs of the contract's models, under their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mqstore.wire.checks import *  # noqa: F403
    from mqstore.wire.transactions import *  # noqa: F403
else:
    from mqstore.service.structs import structs_of
    from mqstore.wire import checks, transactions

    globals().update(structs_of(checks, transactions))
