"""Replies of the query service: msgspec structs with the names of the wire models.

Encoding a struct is faster than encoding the pydantic model that it is made from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mqstore.wire.dead_letters import *  # noqa: F403
    from mqstore.wire.findings import *  # noqa: F403
    from mqstore.wire.lags import *  # noqa: F403
    from mqstore.wire.messages import *  # noqa: F403
    from mqstore.wire.queues import *  # noqa: F403
    from mqstore.wire.segments import *  # noqa: F403
    from mqstore.wire.shards import *  # noqa: F403
    from mqstore.wire.traces import *  # noqa: F403
else:
    from mqstore.service.structs import structs_of
    from mqstore.wire import (
        dead_letters,
        findings,
        lags,
        messages,
        queues,
        segments,
        shards,
        traces,
    )

    globals().update(
        structs_of(dead_letters, findings, lags, messages, queues, segments, shards, traces)
    )
