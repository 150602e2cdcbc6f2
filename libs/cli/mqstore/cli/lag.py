"""``mqstore lag``: prints the lag of consumer groups."""

from __future__ import annotations

from typing import Annotated

import typer

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK
from mqstore.cli.service_access import (
    Access,
    AsJson,
    Ca,
    QueryUrl,
    Shard,
    Token,
    TokenFile,
    duration,
    in_json,
    print_json,
    run_with_client,
)
from mqstore.client import QUERY_URL, Client, GroupLag, GroupLags, GroupSum


def lag(
    group: Annotated[
        str | None, typer.Argument(help="Consumer group, shown by queue. [default: all groups]")
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    shard: Shard = None,
    query_url: QueryUrl = QUERY_URL,
    token: Token = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: AsJson = None,
) -> None:
    """Print the lag of consumer groups, in messages and in time.

    Exit code 0: printed; 1: a shard is missing; 2: refused; 3: the query service does not answer.
    """

    def print_lags(client: Client) -> int:
        """Print the lags; returns the exit code."""
        if group is None:
            return _print_groups(client, topic, in_lines=in_json(as_json))
        return _print_group(client.lag(group, topic=topic), in_lines=in_json(as_json))

    access = Access(token, token_file, ca, shard)
    raise typer.Exit(run_with_client(access, print_lags, query_url=query_url))


def _print_groups(client: Client, topic: str | None, *, in_lines: bool) -> int:
    cursor: str | None = None
    worst = EXIT_OK
    while True:
        page = client.lags(topic=topic, cursor=cursor)
        if in_lines:
            print_json(page)
        else:
            _print_page(page, with_head=cursor is None)
        worst = max(worst, _exit_code(page))
        cursor = page.next
        if cursor is None:
            return worst


def _print_page(page: GroupLags, *, with_head: bool) -> None:
    if with_head:
        _print_source(page)
        print(f"{'group':<32} {'topic':<32} {'lag':>12} {'oldest':>10} {'expired':>10}")
    for group in page.groups:
        for topic in group.topics:
            print(
                f"{group.group:<32} {topic.topic:<32} {topic.lag:>12} "
                f"{duration(topic.lag_ms):>10} {topic.expired:>10}"
            )
        if states := _states(group):
            print(f"{group.group:<32} {states}")


def _print_group(found: GroupLag, *, in_lines: bool) -> int:
    if in_lines:
        print_json(found)
        return _exit_code(found)
    _print_source(found)
    print(
        f"{'topic':<32} {'shard':>5} {'queue':>5} {'committed':>12} {'end':>12} {'lag':>12} "
        f"{'oldest':>10}"
    )
    for topic in found.topics:
        for queue in topic.queues:
            committed = "-" if queue.committed is None else queue.committed
            shard = "-" if queue.shard is None else queue.shard
            print(
                f"{topic.topic:<32} {shard:>5} {queue.queue_id:>5} {committed:>12} "
                f"{queue.max_offset:>12} {queue.lag:>12} {duration(queue.lag_ms):>10}"
            )
    if states := _states(found):
        print(states)
    return _exit_code(found)


def _states(group: GroupSum | GroupLag) -> str:
    """The lag by state, where not all of it waits for its first delivery; else empty."""
    counts: dict[str, int | str] = {}
    if (states := group.states) is not None:
        counts = {
            "leased": states.leased,
            "retrying": states.retrying,
            "acknowledged": states.acknowledged,
            "delayed": "?" if states.delayed is None else states.delayed,
        }
    counts["dead"] = group.dead_letters
    if not any(counts.values()):
        return ""
    if states is not None:
        counts = {"waiting": states.waiting, **counts}
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _exit_code(answer: GroupLags | GroupLag) -> int:
    is_whole = answer.shards is None or not answer.shards.missing
    return EXIT_OK if is_whole else EXIT_FINDINGS


def _print_source(answer: GroupLags | GroupLag) -> None:
    offsets = answer.offsets
    if offsets.saved_at is None:
        print("no offset was ever saved")
    else:
        print(f"offsets saved {duration(offsets.age_ms)} ago; the writer is {offsets.writer}")
    if answer.shards is not None:
        for number in answer.shards.missing:
            print(f"shard {number} is not included: {answer.shards.why[str(number)]}")
