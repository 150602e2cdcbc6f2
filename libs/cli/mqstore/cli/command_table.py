"""All commands of ``mqstore``: names, modules, and the first line of each help."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mqstore.cli.lazy_group import Entry, Group, Leaf

_TO: Final = {"--to": "--until"}
_SINCE: Final = {"--since": "--from"}

COMMANDS: Final[Mapping[str, Entry]] = {
    "topic": Group(
        "Topics: list, show, create, change and delete them.",
        {
            "ls": Leaf("topic:ls", "List the topics."),
            "info": Leaf("topic:info", "Show a topic: its settings, and the bounds of its queues."),
            "create": Leaf("topic:create", "Create a topic. Needs the role admin."),
            "update": Leaf("topic:update", "Change the given settings of a topic."),
            "delete": Leaf("topic:delete", "Delete a topic with its queues."),
        },
    ),
    "produce": Leaf("produce:produce", "Store messages in a topic."),
    "consume": Leaf("consume:consume", "Print the messages of a topic, oldest first."),
    "message": Group(
        "Messages: find, trace and resend them.",
        {
            "get": Leaf("get:get", "Print messages by their ids, in the order of the ids."),
            "find": Leaf("message:find", "Find the messages of a topic with a key.", former=_TO),
            "ls": Leaf("message:ls", "List the messages of a topic by store time.", former=_TO),
            "trace": Leaf("trace:trace", "Print the copies of a message and the groups past it."),
            "resend": Leaf("message:resend", "Store messages again."),
        },
    ),
    "group": Group(
        "Consumer groups: list, show, change and move them.",
        {
            "ls": Leaf("group:ls", "List the consumer groups."),
            "info": Leaf("group:info", "Show a group: its settings and its committed offsets."),
            "lag": Leaf("lag:lag", "Print the lag of consumer groups, in messages and in time."),
            "update": Leaf("group:update", "Change the given settings of a group, or create it."),
            "reset": Leaf("group:reset", "Move a group to the beginning, the end or a time."),
            "seek": Leaf("group:seek", "Move a group in one queue to an offset."),
            "clone": Leaf("group:clone", "Set the offsets of a group to those of another."),
            "delete": Leaf("group:delete", "Delete a group: its settings and its offsets."),
        },
    ),
    "lag": Leaf("lag:lag", "The same as `group lag`.", hidden=True),
    "dlq": Group(
        "Dead letters of a group: list, resend, export and purge them.",
        {
            "ls": Leaf("dlq_ls:ls", "Print the dead letters of a group.", former=_SINCE),
            "resend": Leaf("dlq_resend:resend", "Resend dead letters of a group.", former=_SINCE),
            "export": Leaf(
                "dlq_export:export", "Write the dead letters of a group to a file.", former=_SINCE
            ),
            "purge": Leaf("dlq_purge:purge", "End the listing of dead letters.", former=_SINCE),
        },
    ),
    "tx": Group(
        "Transactions: list and show them, and resolve one by hand.",
        {
            "ls": Leaf("tx:ls", "List transactions, the oldest first."),
            "info": Leaf("tx:info", "Show a transaction: state, checks and half messages."),
            "show": Leaf("tx:info", "The same as `tx info`.", hidden=True),
            "resolve": Leaf("tx:resolve", "Commit or roll back a transaction by hand."),
        },
    ),
    "delay": Group(
        "Delayed messages.",
        {"ls": Leaf("store_state:delays", "List the delay levels, and count what waits.")},
    ),
    "retention": Group(
        "Deletion of expired messages: show the plan, and run it.",
        {
            "plan": Leaf("store_state:retention_plan", "Show what retention will delete, and why."),
            "run": Leaf("store_state:retention_run", "Delete the segments that have expired now."),
        },
    ),
    "index": Group(
        "The index of keys.",
        {
            "status": Leaf("store_state:index_status", "Show the state of the index of keys."),
            "rebuild": Leaf("index_rebuild:rebuild", "Rebuild the index from the log."),
        },
    ),
    "scrub": Group(
        "The comparison of the log with its checksums.",
        {
            "status": Leaf("store_state:scrub_status", "Show the progress, and the damage found."),
            "start": Leaf("store_state:scrub_start", "Begin a pass over all checksums."),
            "repair": Leaf("store_state:scrub_repair", "Repair the damage of the log."),
        },
    ),
    "shard": Group(
        "Shards and the copies of their stores.",
        {"ls": Leaf("shard_ls:ls", "Print a row for each shard: address, role, lag, copies.")},
    ),
    "config": Group(
        "Settings of the running services.",
        {
            "ls": Leaf("config:ls", "List the settings that differ from their defaults."),
            "get": Leaf("config:get", "Show a setting: its value, source and default."),
            "set": Leaf("config:how", "Say how a setting is changed."),
        },
    ),
    "events": Leaf("events:events", "Print the events of a store."),
    "check": Leaf("check:check", "Check the services, the store, the disk and the groups."),
    "top": Leaf("top:top", "Show live rates, lags and disk, until q or Ctrl-C."),
    "bench": Group(
        "Throughput and latency, as a client sees them.",
        {
            "produce": Leaf("bench:produce", "Measure the storing of messages."),
            "consume": Leaf("bench:consume", "Measure receiving and acknowledging."),
            "tx": Leaf("bench:tx", "Measure transactions: begin and commit."),
        },
    ),
    "generate": Group(
        "Files for monitoring and for running the services.",
        {
            "grafana": Leaf("generate:grafana", "Print the dashboard for Grafana, in JSON."),
            "alerts": Leaf("generate:alerts", "Print the alerting rules for Prometheus."),
            "systemd": Leaf("generate:systemd", "Print a unit of systemd for all services."),
            "compose": Leaf("generate:compose", "Print a file for docker compose."),
        },
    ),
    "debug": Group(
        "Reports for those who help.",
        {"bundle": Leaf("debug_bundle:bundle", "Write the state of all services to an archive.")},
    ),
    "context": Group(
        "Contexts: names for the addresses and credentials of clusters.",
        {
            "add": Leaf("context_commands:add", "Add a context, or replace one."),
            "use": Leaf("context_commands:use", "Use a context for the commands that name none."),
            "ls": Leaf("context_commands:ls", "List the contexts."),
            "rm": Leaf("context_commands:rm", "Remove a context. Its token file stays."),
            "info": Leaf("context_commands:info", "Show a context, by default the one in use."),
            "show": Leaf("context_commands:info", "The same as `context info`.", hidden=True),
        },
    ),
    "backup": Group(
        "Backups of a store: create, list, verify and prune them.",
        {
            "create": Leaf("backup_create:create", "Back up a store, also beside its writer."),
            "ls": Leaf("backup_ls:ls", "List the backups of a place."),
            "verify": Leaf("backup_verify:verify", "Read a backup, and compare its checksums."),
            "prune": Leaf("backup_prune:prune", "Remove old backups."),
        },
    ),
    "restore": Leaf("restore:restore", "Restore a store from a backup."),
    "run": Leaf("run:run", "Run all services over a store directory, until Ctrl-C."),
    "follow": Leaf("follow_leader:follow_leader", "Copy the store of a running broker."),
    "promote": Leaf("promote:promote", "Stop following the leader, and open the store."),
    "store": Group(
        "A store directory: inspect, check and repair it.",
        {
            "info": Leaf("store_info:info", "Show a store: bounds, counts, and how it was left."),
            "dump": Leaf("dump:dump", "Print all that is in a store, as JSON lines."),
            "verify": Leaf("verify:verify", "Check a store directory without changing it."),
            "repair": Leaf("repair:repair", "Repair all that `store verify` finds in a store."),
            "rebuild": Leaf("store_rebuild:rebuild", "Make queues and index again from the log."),
            "export": Leaf("store_export:export", "Write the messages of a store to a file."),
            "import": Leaf("store_import:import_messages", "Store the messages of an export."),
            "adopt": Leaf("adopt:adopt", "Make a commit log outside its root the root's own."),
            "accept-loss": Leaf("accept_loss:accept_loss", "Accept that durable data is gone."),
        },
    ),
}
