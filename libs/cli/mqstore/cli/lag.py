"""``mqstore lag``: how far consumer groups are behind."""

from __future__ import annotations

from typing import Annotated

import typer

from mqstore.cli.asking import (
    Access,
    AsJson,
    Ca,
    QueryUrl,
    Shard,
    Token,
    TokenFile,
    asked,
    duration,
    in_json,
    print_json,
)
from mqstore.cli.ending import EXIT_FINDINGS, EXIT_FINE
from mqstore.client import QUERY_URL, Client, GroupLag, GroupLags


def lag(
    group: Annotated[str | None, typer.Argument(help="One group, by queue. [default: all]")] = None,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    shard: Shard = None,
    query_url: QueryUrl = QUERY_URL,
    token: Token = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: AsJson = None,
) -> None:
    """Tell how far consumer groups are behind, in messages and in time.

    Exit code 0: told; 1: a shard is missing; 2: refused; 3: the query service does not answer.
    """

    def ask(client: Client) -> int:
        if group is None:
            return _tell_all(client, topic, in_lines=in_json(as_json))
        return _tell(client.lag(group, topic=topic), in_lines=in_json(as_json))

    raise typer.Exit(asked(Access(token, token_file, ca, shard), ask, query_url=query_url))


def _tell_all(client: Client, topic: str | None, *, in_lines: bool) -> int:
    cursor: str | None = None
    worst = EXIT_FINE
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


def _tell(found: GroupLag, *, in_lines: bool) -> int:
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
    if found.dead_letters:
        print(f"dead letters: {found.dead_letters}")
    return _exit_code(found)


def _exit_code(answer: GroupLags | GroupLag) -> int:
    is_whole = answer.shards is None or not answer.shards.missing
    return EXIT_FINE if is_whole else EXIT_FINDINGS


def _print_source(answer: GroupLags | GroupLag) -> None:
    offsets = answer.offsets
    if offsets.saved_at is None:
        print("no offset was ever saved")
    else:
        print(f"offsets saved {duration(offsets.age_ms)} ago; the writer is {offsets.writer}")
    if answer.shards is not None:
        for number in answer.shards.missing:
            print(f"what is on shard {number} is not told: {answer.shards.why[str(number)]}")
