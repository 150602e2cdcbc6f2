"""Messages in hot routes: msgspec structs of the contract's models, under their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mqstore.wire.consumers import *  # noqa: F403
    from mqstore.wire.messages import *  # noqa: F403
else:
    from mqstore.service.structs import structs_of
    from mqstore.wire import consumers, messages

    globals().update(structs_of(consumers, messages))
