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

    Exit code 0: told; 2: refused; 3: the query service does not answer.
    """

    def ask(client: Client) -> int:
        if group is None:
            _tell_all(client, topic, in_lines=in_json(as_json))
        else:
            _tell(client.lag(group, topic=topic), in_lines=in_json(as_json))
        return 0

    raise typer.Exit(asked(Access(token, token_file, ca, shard), ask, query_url=query_url))


def _tell_all(client: Client, topic: str | None, *, in_lines: bool) -> None:
    cursor: str | None = None
    while True:
        page = client.lags(topic=topic, cursor=cursor)
        if in_lines:
            print_json(page)
        else:
            _print_page(page, with_head=cursor is None)
        cursor = page.next
        if cursor is None:
            return


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


def _tell(found: GroupLag, *, in_lines: bool) -> None:
    if in_lines:
        print_json(found)
        return
    _print_source(found)
    print(f"{'topic':<32} {'queue':>5} {'committed':>12} {'end':>12} {'lag':>12} {'oldest':>10}")
    for topic in found.topics:
        for queue in topic.queues:
            committed = "-" if queue.committed is None else queue.committed
            print(
                f"{topic.topic:<32} {queue.queue_id:>5} {committed:>12} {queue.max_offset:>12} "
                f"{queue.lag:>12} {duration(queue.lag_ms):>10}"
            )
    if found.dead_letters:
        print(f"dead letters: {found.dead_letters}")


def _print_source(answer: GroupLags | GroupLag) -> None:
    offsets = answer.offsets
    if offsets.saved_at is None:
        print("no offset was ever saved")
    else:
        print(f"offsets saved {duration(offsets.age_ms)} ago; the writer is {offsets.writer}")
