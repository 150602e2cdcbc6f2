"""Findings about a store: one list for the console, the commands, probes and alerts."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from mqstore.wire.base import Reply
from mqstore.wire.operation import Operation, Role, Target
from mqstore.wire.shards import OfShards

CONSUMER_BEHIND_MS: Final = 600_000
"""Age of the oldest message that a group has not consumed, beyond which it is behind."""
TRANSACTION_STUCK_MS: Final = 600_000
"""Age of a pending transaction beyond which it counts as stuck."""
OF_A_KIND_MAX: Final = 20
"""Groups that are named one by one; the others are counted."""
ALERTS: Final = {
    "store-read-only": "StoreReadOnly",
    "puts-refused": "PutsRefused",
    "disk-refuses-puts": "DiskRefusesPuts",
    "index-needs-rebuild": "IndexNeedsRebuild",
    "log-damaged": "LogDamaged",
    "replicas-not-enough": "ReplicasNotEnough",
    "transactions-stuck": "TransactionsStuck",
    "transactions-set-aside": "TransactionsSetAside",
    "consumer-behind": "ConsumerBehind",
    "dead-letters": "DeadLetters",
    "shard-missing": "ShardMissing",
}
"""The kinds of findings that have an alert, by the same condition."""


class Finding(Reply):
    """One condition that a person should know of."""

    kind: Annotated[
        str, Field(description="The alert of the same condition in kebab case; `writes-paused`.")
    ]
    severity: Annotated[str, Field(description="`critical`: messages are refused; or `warning`.")]
    shard: int
    text: str
    page: Annotated[str, Field(description="Name of the how-to page that says what to do.")]


_EXAMPLE: Final = {
    "findings": [
        {
            "kind": "dead-letters",
            "severity": "warning",
            "shard": 0,
            "text": "group billing has 358 dead letters",
            "page": "handle-dead-letters",
        }
    ]
}


class Findings(OfShards):
    """Findings, critical ones first; none: all is well, as far as the shards replied."""

    findings: tuple[Finding, ...]


STORE_FINDINGS: Final = Operation(
    name="store_findings",
    targets=(Target.WRITER,),
    path="/v1/store/findings",
    role=Role.CONSUME,
    summary="What is wrong with the store now",
    tag="store",
    reply=Findings,
    example=_EXAMPLE,
)
FINDINGS: Final = Operation(
    name="findings",
    targets=(Target.QUERY,),
    path="/v1/findings",
    role=Role.CONSUME,
    summary="What is wrong now",
    tag="store",
    reply=Findings,
    example=_EXAMPLE,
)
