"""Rows about messages: each panel says what to do about a bad value."""

from __future__ import annotations

from typing import Final

from charts.dashboard.panels import (
    BAD,
    RELEASE,
    SPACE,
    USED,
    WARNING,
    Panel,
    by_group,
    by_pod,
    heat,
    levels,
    lines,
    number,
    of,
    quantiles,
    rate,
    summed,
)

USERS: Final = 'is_system="false"'
FIRST_TRIES: Final = f'{USERS},is_retry="false"'
RETRIES: Final = f'{USERS},is_retry="true"'
NAMED: Final = 'consumer_group!=""'
ROUTES: Final = 'route!~"/metrics|/healthz/.*"'
OPENED: Final = of("mqstore_store_open")
LAG: Final = "rocketmq_consumer_lag_messages"
AGE: Final = of("rocketmq_consumer_lag_latency", USERS)
LEASED: Final = "rocketmq_consumer_inflight_messages"
OF_GROUP: Final = "consumer_group, topic"
CHECKS: Final = f"rate(mqstore_coordinator_checks_total{{{RELEASE}}}[$__rate_interval])"
USABLE: Final = f'mqstore_coordinator_shard_usable{{{RELEASE},shard=~"$shard"}}'


def unleased(matchers: str) -> str:
    """Return the number of messages that are neither consumed nor leased."""
    lag, leased = (summed(each, matchers, each=OF_GROUP) for each in (LAG, LEASED))
    return f"{lag} - ({leased} or vector(0))"


OVERVIEW: Final[list[Panel]] = [
    number(
        "Stores that are closed",
        "short",
        "Pods whose store is not open: nothing is stored or read there. See Recovery and starts"
        " below, and docs/how-to/replace-a-lost-node.md.",
        f"count({OPENED}) - sum({OPENED})",
        levels((1, BAD)),
    ),
    number(
        "Messages in",
        "cps",
        "Messages stored per second, without those of system topics. 0 under load: see Messages"
        " refused, by reason.",
        f"sum({rate('rocketmq_messages_in_total', USERS)})",
        levels(),
    ),
    number(
        "Messages out",
        "cps",
        "Messages read per second. 0 while messages come in: see Consumers below.",
        f"sum({rate('rocketmq_messages_out_total', USERS)})",
        levels(),
    ),
    number(
        "Oldest unread message",
        "ms",
        "Age of the oldest message that a group has not consumed. Above ten minutes:"
        " docs/how-to/monitor-lag.md.",
        f"max({AGE})",
        levels((60_000, WARNING), (600_000, BAD)),
    ),
    number(
        "Fullest volume",
        "percentunit",
        "Used part of the fullest volume. Above 85 %: docs/how-to/free-a-full-disk.md.",
        f"max({of(USED)})",
        levels(*SPACE),
    ),
    number(
        "Index of keys",
        "short",
        "Whether every message can be found by its key. Not complete for long:"
        " docs/how-to/rebuild-the-index.md.",
        f"1 - min({of('mqstore_index_complete')})",
        levels((1, WARNING)),
        {"0": "complete", "1": "not complete"},
    ),
    lines(
        "Messages in, by topic",
        "cps",
        "The 20 busiest topics. A topic that stops: look for its producers.",
        (f"topk(20, sum by (topic) ({rate('rocketmq_messages_in_total')}))", "{{topic}}"),
    ),
    lines(
        "Messages out, by group",
        "cps",
        "The 20 busiest groups; without a name: pulls that name no group. A group that stops"
        " while its lag grows: look for its consumers.",
        (
            f"topk(20, sum by (consumer_group) ({rate('rocketmq_messages_out_total', NAMED)}))",
            "{{consumer_group}}",
        ),
    ),
    lines(
        "Messages in, by shard",
        "cps",
        "Shards differ where keys or queues are not spread evenly: docs/concepts/shards.md.",
        (f"sum by (shard) ({rate('rocketmq_messages_in_total')})", "{{shard}}"),
    ),
    lines(
        "Bytes in and out",
        "binBps",
        "Bytes of records. Compare with what volumes and network can do.",
        (f"sum({rate('rocketmq_throughput_in_total')})", "in"),
        (f"sum({rate('rocketmq_throughput_out_total')})", "out"),
    ),
    lines(
        "Errors by name",
        "cps",
        "Error replies by problem; docs/reference/problems.md says what to do about each.",
        (f"topk(20, sum by (problem) ({rate('mqstore_problems_total')}))", "{{problem}}"),
    ),
    lines(
        "Messages refused, by reason",
        "short",
        "Pods that refuse messages, by reason. Above 0: docs/how-to/open-a-refused-store.md, or"
        " for disk-full and no-room docs/how-to/free-a-full-disk.md.",
        (f"sum by (reason) ({of('mqstore_puts_refused')})", "{{reason}}"),
    ),
]
"""The state of all shards."""


PUTS_AND_READS: Final[list[Panel]] = [
    heat(
        "Puts",
        "s",
        "Time of puts, from the request for the put lock until messages are in log and queue."
        " Slow ones without load: the disk, or memory that is reclaimed.",
        "mqstore_put_seconds",
    ),
    heat(
        "Waits for the disk",
        "s",
        "Time that synchronous produces waited for their group commit. It follows the disk's"
        " latency: check its load.",
        "mqstore_sync_wait_seconds",
    ),
    heat(
        "Waits for replicas",
        "s",
        "Time that produces waited for a replica. Slow: see Replicas below.",
        "mqstore_replica_wait_seconds",
    ),
    lines(
        "Puts, quantiles",
        "s",
        "As Puts. A p99 far above p50: single puts wait for a new segment or for the disk.",
        *quantiles("mqstore_put_seconds"),
    ),
    lines(
        "Waits for the disk, quantiles",
        "s",
        "As Waits for the disk. Growing while the load does not: check the disk.",
        *quantiles("mqstore_sync_wait_seconds"),
    ),
    lines(
        "Requests, p99 by kind",
        "ms",
        "Requests that RocketMQ has too, by its name; a pull may wait for messages. Slow reads"
        " of old messages come from the disk: docs/concepts/store.md.",
        *quantiles("rocketmq_rpc_latency", by="request_code"),
    ),
    lines(
        "Requests, p99 by route",
        "s",
        "The 20 slowest routes, long polls included.",
        *quantiles("mqstore_http_request_seconds", ROUTES, by="route"),
    ),
    lines(
        "Not yet on disk",
        "bytes",
        "Bytes of the log that are not synced; a power failure loses them. Above 256 MiB: check"
        " the load of the disk.",
        by_pod(of("rocketmq_storage_flush_behind_bytes")),
    ),
    lines(
        "Size of messages",
        "bytes",
        "Bytes of stored records. Large ones fill the volume and the caches.",
        *quantiles("rocketmq_message_size"),
    ),
    lines(
        "Duplicates",
        "cps",
        "Messages that were stored already under their unique key. Many: producers retry, so"
        " look at Errors by name and at latencies.",
        by_pod(rate("mqstore_repeats_total"), "sum"),
    ),
    lines(
        "Requests in progress",
        "short",
        "Requests, and the long polls among them. Growing: replies are slow, or more consumers"
        " wait.",
        (f"sum({of('mqstore_http_in_flight')})", "requests"),
        (f"sum({of('mqstore_open_polls')})", "long polls"),
    ),
    lines(
        "Requests refused by a limit",
        "cps",
        "By limit and pod. Above 0 for long: docs/concepts/limits.md.",
        (
            f"sum by (pod, limit) ({rate('mqstore_limit_refused_total')})",
            "{{pod}} {{limit}}",
        ),
    ),
]
"""Latencies."""


CONSUMERS: Final[list[Panel]] = [
    lines(
        "Lag, by group",
        "short",
        "Messages that the group has not consumed; the 20 largest. Growing:"
        " docs/how-to/monitor-lag.md.",
        (by_group(LAG, USERS, each="topic"), "{{consumer_group}}"),
    ),
    lines(
        "Oldest unread message, by group",
        "ms",
        "Age of the oldest message that the group has not consumed. Growing: its consumers do"
        " not keep up, or none runs.",
        (
            f"topk(20, max by (consumer_group) ({AGE}))",
            "{{consumer_group}}",
        ),
    ),
    lines(
        "Messages of groups, by state",
        "short",
        "Many leased: consumers are slow to acknowledge. Many retrying or delayed: they fail.",
        (unleased(FIRST_TRIES), "waiting"),
        (summed(LEASED, USERS, each=OF_GROUP), "leased"),
        (unleased(RETRIES), "retrying"),
        (summed("mqstore_consumer_delayed_messages", each="consumer_group"), "delayed"),
        stacked=True,
    ),
    lines(
        "Leases, by group",
        "short",
        "Messages leased to consumers that have not acknowledged them. At the group's limit:"
        " its consumers hang.",
        (by_group(LEASED, USERS, each="topic"), "{{consumer_group}}"),
    ),
    lines(
        "Retries, by group",
        "short",
        "Returned messages, due and delayed. Growing: consumers fail on the same messages.",
        (by_group(LAG, RETRIES, each="topic"), "{{consumer_group}} due"),
        (
            by_group("mqstore_consumer_delayed_messages"),
            "{{consumer_group}} delayed",
        ),
    ),
    lines(
        "Dead letters, by group",
        "short",
        "Messages that the group failed to process. Above 0: docs/how-to/handle-dead-letters.md.",
        (
            by_group("mqstore_dead_letters"),
            "{{consumer_group}}",
        ),
    ),
    lines(
        "Expired unread, by group",
        "short",
        "Messages that retention deleted before the group consumed them, since the group began."
        " When it rises they are lost to it, see docs/how-to/prevent-unread-expiry.md.",
        (
            by_group("mqstore_consumer_expired_unread_total", each="topic"),
            "{{consumer_group}}",
        ),
    ),
    lines(
        "Ordered groups",
        "short",
        "Members, and queues without one: nothing is consumed from these.",
        (
            by_group("mqstore_consumer_group_members"),
            "{{consumer_group}} members",
        ),
        (
            by_group("mqstore_consumer_group_queues_without_member"),
            "{{consumer_group}} queues without a member",
        ),
    ),
    lines(
        "Groups without metrics",
        "short",
        "Pairs of group and topic, and groups with dead letters, beyond metricsLagsMax. Above"
        " 0: raise it, or use the console.",
        (summed("mqstore_consumer_lags_left_out"), "lags"),
        (summed("mqstore_dead_letters_left_out"), "dead letters"),
    ),
]
"""Lags and states of groups."""


DELAYED: Final[list[Panel]] = [
    lines(
        "Waiting, by level",
        "short",
        "Delayed messages by level; timer: those with a time of their own.",
        (
            summed("mqstore_delay_pending", by="level, delay"),
            "level {{level}} {{delay}}",
        ),
    ),
    lines(
        "Behind",
        "s",
        "Seconds since the first waiting message of a level was due. Above a minute: waiting of"
        " GET /v1/store/delays names the cause.",
        (
            f"max by (level, delay) ({of('mqstore_delay_behind_seconds')})",
            "level {{level}} {{delay}}",
        ),
    ),
    heat(
        "Delivery",
        "s",
        "Time from when messages were due until their copies were stored. Late: check disk and"
        " Messages refused, by reason.",
        "mqstore_delay_delivery_seconds",
    ),
]
"""Delayed messages."""


TRANSACTIONS: Final[list[Panel]] = [
    lines(
        "Pending, by age",
        "short",
        "Transactions without a decision, and those older than a minute to a day. Old ones:"
        " docs/how-to/resolve-stuck-transactions.md.",
        (f"sum({of('mqstore_transactions_pending')})", "all"),
        (
            f"sum by (older_than_seconds) ({of('mqstore_transactions_pending_by_age')})",
            "older than {{older_than_seconds}} s",
        ),
    ),
    lines(
        "Half messages, by topic",
        "short",
        "Half messages without a decision; the 20 topics with most. One topic stands out: look at"
        " its producers.",
        (f"topk(20, {summed('rocketmq_half_messages', by='topic')})", "{{topic}}"),
    ),
    lines(
        "Oldest pending, by shard",
        "s",
        "Above ten minutes: docs/how-to/resolve-stuck-transactions.md.",
        (f"max by (shard) ({of('mqstore_transactions_oldest_seconds')})", "{{shard}}"),
    ),
    lines(
        "Set aside, by shard",
        "short",
        "Transactions that wait for an operator. Above 0:"
        " docs/how-to/resolve-stuck-transactions.md.",
        (f"max by (shard) ({of('mqstore_transactions_set_aside')})", "{{shard}}"),
    ),
    lines(
        "Begun and decided",
        "cps",
        "Many rolled back or set aside: look at the producers.",
        (f"sum({rate('mqstore_transactions_begun_total')})", "begun"),
        (f"sum by (decision) ({rate('mqstore_transactions_decided_total')})", "{{decision}}"),
    ),
    lines(
        "Check-backs",
        "cps",
        "Checks sent to producers, and those followed by a decision. Sent but not answered: no"
        " producer of the group runs, or it does not know the transaction.",
        (f"sum({rate('mqstore_transactions_checks_sent_total')})", "sent"),
        (f"sum({rate('mqstore_transactions_checks_answered_total')})", "decided after a check"),
    ),
    lines(
        "Check-backs that wait, by shard",
        "short",
        "Checks that are due and no producer has taken. Growing: no producer of a group runs.",
        (f"max by (shard) ({of('mqstore_transactions_checks_waiting')})", "{{shard}}"),
    ),
    lines(
        "Check-backs of registered producers",
        "cps",
        "By result. unreachable: check the callback addresses and network policies.",
        (f"sum by (result) ({CHECKS})", "{{result}}"),
    ),
    lines(
        "Time from begin to commit",
        "s",
        "Long: producers decide late, or only after a check.",
        *quantiles("rocketmq_finish_message_latency"),
    ),
    lines(
        "Coordinators that can use a shard",
        "short",
        "0: producers that went silent are not called back; see the log of the coordinators.",
        (f"sum by (shard) ({USABLE})", "{{shard}}"),
    ),
]
"""Transactions of shards, and coordinators."""
