"""A store whose writer goes on: the job reads the log, plans, and sends the items; the writer, who
leaves everything below where it began to the job, puts them into files and publishes these."""

from __future__ import annotations

import logging
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mqstore.client import Client, PublishedIndex, Unreachable
from mqstore.jobs.errors import SegmentGone
from mqstore.jobs.job_run import JobRun, Outcome
from mqstore.jobs.log import at_path
from mqstore.jobs.log.at_url import LogAtUrl
from mqstore.jobs.log.source import LogSegment
from mqstore.jobs.rebuild.lease import Lease, begun
from mqstore.jobs.rebuild.sending import send_part
from mqstore.jobs.rebuild.settings import RebuildSettings
from mqstore.jobs.rebuild.spark_build import SparkBuild
from mqstore.jobs.rebuild.tasks import Extraction
from mqstore.jobs.shard_place import ShardPlace
from mqstore.storage.index import BuildPlan, Layout

if TYPE_CHECKING:
    from mqstore.jobs.rebuild.segment_views import LogPlace

PARTS_MAX: Final = 2
"""Parts that a writer receives at the same time."""
PUBLISH_TRIES: Final = 5
PUBLISH_WAIT_S: Final = 2.0

log = logging.getLogger(__name__)


def rebuild(settings: RebuildSettings, run: JobRun, place: ShardPlace) -> Outcome:
    """Rebuild the index beside a running writer; once more if a segment is deleted meanwhile.

    Raises JobError, ClientError.
    """
    with place.client() as client:
        try:
            return _rebuilt(settings, run, place, client)
        except SegmentGone as error:
            log.warning("%s: %s: once more", place.where, error)
            return _rebuilt(settings, run, place, client)


def _rebuilt(settings: RebuildSettings, run: JobRun, place: ShardPlace, client: Client) -> Outcome:
    where = log_of(place)
    with begun(client, settings) as lease:
        found = lease.rebuild
        segments = [LogSegment(s.name, int(s.name), s.start, s.end) for s in found.segments]
        layout = Layout(found.hash_slots, found.index_num, found.tags)
        parts = min(run.spark.sparkContext.defaultParallelism, PARTS_MAX)
        with SparkBuild(run, Extraction(where, layout, parts), segments) as build:
            scan = build.scan()
            lease.require()
            plan = build.build_plan(scan)
            client.plan_index_rebuild(found.id, plan_document(plan, parts))
            build.fill(scan, partial(send_part, place, found.id))
        lease.require()
        published = _published(client, lease)
    return scan.outcome(
        {
            "rebuild": found.id,
            "owner": found.owner,
            "published": list(published.published),
            "replaced": list(published.replaced),
        }
    )


def log_of(place: ShardPlace) -> LogPlace:
    """The place of a shard's log. Raises NoStore."""
    if place.is_url:
        return LogAtUrl(place.where, place.token_file, place.ca)
    where = at_path.look(Path(place.where)).log
    assert isinstance(where, at_path.LogAtPath)
    return where


def plan_document(plan: BuildPlan, parts: int) -> dict[str, Any]:
    """A plan in JSON, as the writer's API takes it."""
    return {
        "parts": parts,
        "files": [
            {
                "first": each.first,
                "items": each.items,
                "begin": each.begin,
                "end": each.end,
                "carriedMs": each.carried_ms,
            }
            for each in plan.files
        ],
        "starts": plan.starts,
        "firsts": plan.firsts,
    }


def _published(client: Client, lease: Lease) -> PublishedIndex:
    """Publish the index; retries if the reply was lost, which is safe: the result is the same."""
    for tried in range(1, PUBLISH_TRIES + 1):
        try:
            return client.publish_index_rebuild(lease.rebuild.id)
        except Unreachable:
            if tried == PUBLISH_TRIES:
                raise
            time.sleep(PUBLISH_WAIT_S)
    raise AssertionError("the last try returns or raises")
