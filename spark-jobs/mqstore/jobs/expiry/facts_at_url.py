"""Facts of a shard by the addresses of its services: what its store-writer says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pydantic import ValidationError

from mqstore.client import Client, Retention, every_page
from mqstore.jobs.errors import JobError
from mqstore.jobs.expiry.facts import Offsets, ShardFacts
from mqstore.jobs.expiry.facts_at_path import ID_DIGITS
from mqstore.storage import StoreConfig
from mqstore.storage.retention import Disks, RetentionPlan, SegmentFacts

SEGMENTS_MAX: Final = 100_000


def look(client: Client) -> ShardFacts:
    """Raises ClientError, JobError for a service of another version."""
    store, delays = client.store(), client.delays()
    planned = _plan(client.retention(limit=SEGMENTS_MAX))
    levels = " ".join(each.delay for each in delays.levels)
    return ShardFacts(
        name=f"{store.store_id[:ID_DIGITS]}-{store.shard}",
        now_ms=planned.made_ms,
        config=planned.rule.apply_to(StoreConfig(message_delay_level=levels)),
        segments=[
            SegmentFacts(each.name, each.offset, each.offset + each.size, each.modified_ms)
            for each in planned.segments
        ],
        newest=planned.segments[-1].name if planned.segments else None,
        dispatched=store.dispatched_offset,
        disks=Disks(planned.volumes, planned.puts_refused),
        pins=[hold for hold in planned.holds if hold.kind not in ("group", "delay")],
        honours_holds=True,
        consumed=dict(_consumed(client)),
        delivered={each.level: each.delivered_up_to for each in delays.levels},
    )


def _plan(answer: Retention) -> RetentionPlan:
    try:
        return RetentionPlan.model_validate(answer.model_dump(by_alias=True))
    except ValidationError as error:
        raise JobError(f"store-writer is of another version than this job: {error}") from error


def _consumed(client: Client) -> Iterator[tuple[tuple[str, str], Offsets]]:
    """As store-writer knows it: consumerOffset.json is some seconds behind."""
    for group in [each for page in every_page(client.groups) for each in page.groups]:
        committed: dict[str, dict[int, int]] = {}
        for each in client.offsets(group.group).offsets:
            if each.committed is not None:
                committed.setdefault(each.topic, {})[each.queue_id] = each.committed
        for topic, offsets in committed.items():
            yield (group.group, topic), offsets
