"""Rows about stores, jobs and processes: each panel says what to do about a bad value."""

from __future__ import annotations

from typing import Final

from charts.dashboard.panels import (
    SPACE,
    USED,
    Panel,
    Query,
    by_pod,
    events,
    levels,
    lines,
    of,
    rate,
    summed,
)

YEAR_S: Final = 365 * 24 * 3600
JOB_NAMES: Final = "(backup-[0-9]+|expiry-report|index-rebuild)"
"""Ends of the names of the chart's CronJobs, as a regular expression."""
CRON_JOB: Final = f'namespace="$namespace",cronjob=~".+-{JOB_NAMES}"'
JOB: Final = f'namespace="$namespace",job_name=~".+-{JOB_NAMES}-.+"'
STARTED: Final = of("process_start_time_seconds")
CONTAINER: Final = "{{pod}} {{container}}"


def log_offset(bound: str) -> str:
    """Return the offsets of the logs at a bound."""
    return of("mqstore_store_offset", f'bound="{bound}"')


def held(limit: str) -> str:
    """Return what requests hold of a limit."""
    return of("mqstore_limit_held", f'limit="{limit}"')


def time_until(level: float) -> str:
    """Return the seconds until the first volume is used up to a level, at most a year."""
    room = f"clamp_min({level} - max by (pod) ({of(USED)}), 0)"
    growth = f"clamp_min(max by (pod) (deriv({of(USED)}[6h])), 1e-9)"
    return f"min(clamp_max({room} / {growth}, {YEAR_S}))"


def within(metric: str) -> Query:
    """Return a metric of the expiry report, by horizon."""
    return summed(metric, by="horizon_hours"), "within {{horizon_hours}} h"


RETENTION: Final[list[Panel]] = [
    lines(
        "Volume used",
        "percentunit",
        "Dashed lines: 75 % retention deletes early, 85 % it deletes by force, 90 % messages"
        " are refused. Above 75 %: docs/how-to/free-a-full-disk.md.",
        by_pod(of(USED)),
        thresholds=levels(*SPACE),
    ),
    lines(
        "Volume used in 24 hours",
        "percentunit",
        "Forecast from the last 6 hours, the fullest volume. Above a dashed line: shorten"
        " retention or enlarge the volume before.",
        (f"max(predict_linear({of(USED)}[6h], 86400))", "in 24 hours"),
        (f"max({of(USED)})", "now"),
        thresholds=levels(*SPACE),
    ),
    lines(
        "Time until a volume is full",
        "s",
        "Time until the first volume reaches each level, from its growth in the last 6 hours; a"
        " year: it does not grow. Less than a day: docs/how-to/free-a-full-disk.md.",
        *((time_until(level), f"until {level:.0%}") for level, _ in SPACE),
    ),
    lines(
        "Age of the oldest message",
        "ms",
        "How far back messages are kept. Below fileReservedTime: the volume is too small for"
        " the retention that is set.",
        by_pod(of("rocketmq_storage_message_reserve_time")),
    ),
    lines(
        "Size of the log",
        "bytes",
        "Bytes from the first to the last message, by pod.",
        by_pod(f"{log_offset('max')} - ignoring (bound) {log_offset('min')}"),
    ),
    lines(
        "Deleted segments, in the last hour",
        "short",
        "By why. forced: the volume was too full, so messages went before their time. reader:"
        " a process that reads an old segment did not let go.",
        (f"sum by (why) ({events('mqstore_segments_deleted_total')})", "{{why}}"),
    ),
    lines(
        "Expiring messages",
        "short",
        "Messages that retention deletes within each horizon, by the last expiry report.",
        within("mqstore_expiry_messages"),
    ),
    lines(
        "Expiring bytes",
        "bytes",
        "Bytes of log that retention deletes within each horizon, by the last expiry report. Fewer"
        " than come in meanwhile: the volume fills.",
        within("mqstore_expiry_bytes"),
    ),
    lines(
        "Expiring unread",
        "short",
        "Messages that will be deleted before a group has consumed them. Above 0:"
        " docs/how-to/prevent-unread-expiry.md.",
        within("mqstore_expiry_lost_messages"),
    ),
    lines(
        "Most urgent risks",
        "short",
        "Groups, half messages and delayed messages that will lose messages. Start consumers,"
        " or lengthen retention.",
        (
            f"topk(20, sum by (kind, name, topic) ({of('mqstore_expiry_risk_messages')}))",
            "{{kind}} {{name}}: {{topic}}",
        ),
    ),
]
"""The disk, and what expires."""


DISPATCH: Final[list[Panel]] = [
    lines(
        "Not yet dispatched",
        "bytes",
        "Bytes of the log that have no queue entries: consumers cannot see them. Above 64 MiB:"
        " check CPU and disk.",
        by_pod(of("rocketmq_storage_dispatch_behind_bytes")),
    ),
    lines(
        "Index is complete",
        "short",
        "1: every dispatched message is found by its key. 0 for long:"
        " docs/how-to/rebuild-the-index.md.",
        by_pod(of("mqstore_index_complete"), "min"),
    ),
    lines(
        "Not yet indexed",
        "bytes",
        "Dispatched bytes that the index lacks. It falls while the index catches up.",
        by_pod(
            f"clamp_min({log_offset('dispatched')} - ignoring (bound) {log_offset('indexed')}, 0)"
        ),
    ),
    lines(
        "Index needs a rebuild",
        "short",
        "1: files are absent, or too much is not indexed. Run the job:"
        " docs/how-to/rebuild-the-index.md.",
        by_pod(of("mqstore_index_trouble")),
    ),
    lines(
        "Damaged ranges met by dispatch",
        "short",
        "Ranges of the log that could not be read since the start: messages are missing in"
        " their queues. Above 0: docs/how-to/repair-damage.md.",
        by_pod(of("mqstore_damaged_stretches_total")),
    ),
    lines(
        "Queues",
        "short",
        "Consume queues by pod. Each costs files and memory: docs/concepts/limits.md.",
        by_pod(of("mqstore_queues")),
    ),
]
"""From the log to queues and index."""


REPLICAS: Final[list[Panel]] = [
    lines(
        "Copies in sync",
        "short",
        "Leaders, and the least number that they need. Fewer: messages that are to be"
        " replicated are refused; docs/concepts/replication.md.",
        (f"max by (pod) ({of('mqstore_replication_in_sync')} > 0)", "{{pod}}"),
        (f"max({of('mqstore_replication_in_sync_min')})", "minInSyncReplicas"),
    ),
    lines(
        "Replicas behind",
        "bytes",
        "Bytes of the log that a replica has not acknowledged. Growing: check its disk and"
        " network.",
        (f"max by (pod, slave) ({of('mqstore_replication_lag_bytes')})", "{{pod}}: {{slave}}"),
    ),
    lines(
        "Followers behind, by their own account",
        "bytes",
        "Bytes of the leader's log that a follower lacks, as far as it knows; also of one that is"
        " not connected. Growing: check its disk and network.",
        by_pod(of("mqstore_replication_behind_bytes")),
    ),
    lines(
        "Replicas behind, in time",
        "s",
        "For how long a replica has lacked a part of the log. Above slaveTimeout it leaves the"
        " copies in sync.",
        (f"max by (pod, slave) ({of('mqstore_replication_lag_seconds')})", "{{pod}}: {{slave}}"),
    ),
    lines(
        "Not confirmed",
        "bytes",
        "Bytes of the log that not every copy in sync has on its disk. Large: a disk or the"
        " network is slow.",
        by_pod(of("mqstore_replication_unconfirmed_bytes")),
    ),
    lines(
        "Epoch of the log",
        "short",
        "Each new leader begins an epoch. Many steps: leaders change often; see the log of"
        " store-writer for the cause.",
        by_pod(of("mqstore_replication_epoch")),
    ),
    lines(
        "Sent to replicas",
        "binBps",
        "Bytes of the log per second. A replica that was rebuilt copies the whole log.",
        by_pod(rate("mqstore_replication_sent_bytes_total"), "sum"),
    ),
    lines(
        "Followers",
        "short",
        "1 while the pod copies a leader's log; 0 in leaders. 0 in two replicas of a shard:"
        " one lost its leader, check the network.",
        by_pod(of("mqstore_replication_following")),
    ),
    lines(
        "Refused replicas and corrupt frames, in the last hour",
        "short",
        "Refused: the replica's log is another one, docs/concepts/replication.md. Corrupt: the"
        " network or a disk changes bytes.",
        (f"sum({events('mqstore_replication_refused_total')})", "refused"),
        (f"sum({events('mqstore_replication_corrupt_frames_total')})", "corrupt frames"),
    ),
]
"""Leaders and followers."""


SCRUB: Final[list[Panel]] = [
    lines(
        "Findings",
        "short",
        "Places of the log that differ from what was written. Above 0:"
        " docs/how-to/repair-damage.md.",
        by_pod(of("mqstore_scrub_findings")),
    ),
    lines(
        "Time since the last whole pass",
        "s",
        "Longer than the interval that is set: the scrub is paused, or its rate is too low.",
        by_pod(f"time() - ({of('mqstore_scrub_last_pass_seconds')} > 0)"),
    ),
    lines(
        "Compared in the pass",
        "bytes",
        "Bytes that the running pass, or the last one, has compared. It does not move: see"
        " GET /v1/store/scrub.",
        by_pod(of("mqstore_scrub_checked_bytes")),
    ),
    lines(
        "Repaired places, in the last hour",
        "short",
        "restored: as they were written. tombstone: the message is lost; a backup may have it.",
        (f"sum by (kind) ({events('mqstore_log_repairs_total')})", "{{kind}}"),
    ),
    lines(
        "Damage met by reads, in the last hour",
        "short",
        "Blocks that look-ups reported; the scrub checks each. Above 0: check the disk.",
        by_pod(events("mqstore_damage_reports_total"), "sum"),
    ),
    lines(
        "Fetched from followers, in the last hour",
        "bytes",
        "Bytes of damaged records that followers in sync replaced. Above 0: check the disk.",
        by_pod(events("mqstore_replication_fetched_bytes_total"), "sum"),
    ),
    lines(
        "Quarantine",
        "bytes",
        "Bytes set aside by recoveries and repairs. Delete them after a look:"
        " GET /v1/store/quarantine.",
        by_pod(of("mqstore_quarantine_bytes")),
    ),
]
"""The comparison of the log with its checksums."""


STARTS: Final[list[Panel]] = [
    lines(
        "State of stores",
        "short",
        "Number of pods. Not open: recovery runs or failed. Read-only:"
        " docs/how-to/open-a-refused-store.md.",
        (f"sum({of('mqstore_store_open')})", "open"),
        (f"sum({of('mqstore_store_read_only')})", "read-only"),
        (f"sum({of('mqstore_store_failed')})", "failed"),
    ),
    lines(
        "Uptime",
        "s",
        "By pod and container. It falls at restarts: the last critical line of the log has the"
        " reason.",
        (f"min by (pod, container) (time() - {STARTED})", CONTAINER),
    ),
    lines(
        "Restarts, in the last hour",
        "short",
        "By pod and container. Several: the process fails or has too little memory.",
        (f"sum by (pod, container) (changes({STARTED}[1h]))", CONTAINER),
    ),
    lines(
        "Time of the last recovery",
        "s",
        "Seconds that the opening of the store took. Minutes: it was not closed cleanly, or the"
        " disk is slow; docs/concepts/recovery.md.",
        by_pod(of("mqstore_recovery_seconds")),
    ),
    lines(
        "Openings refused, and durable bytes missing",
        "short",
        "Refused: docs/how-to/recover-from-a-failed-sync.md. Bytes missing:"
        " docs/how-to/accept-missing-data.md.",
        (f"sum({events('mqstore_openings_refused_total')})", "openings refused"),
        (f"max({of('mqstore_durable_bytes_missing')})", "bytes missing"),
    ),
    lines(
        "Stores opened again by query, in the last hour",
        "short",
        "Times that the files of a store were replaced, by a follower that copies or a restore."
        " Many: a follower copies its log again and again; see its log.",
        by_pod(events("mqstore_store_replaced_total"), "sum"),
    ),
    lines(
        "Steps of the clock",
        "s",
        "Seconds by which the last step of the last hour set the clock. Not 0:"
        " docs/how-to/check-a-clock-step.md.",
        by_pod(of("mqstore_clock_step_seconds")),
    ),
]
"""Recoveries, restarts and the clock."""


JOBS: Final[list[Panel]] = [
    lines(
        "Running index rebuild",
        "short",
        "Rebuilds that run, and items received from them. No progress: see the log of the job.",
        (f"sum({of('mqstore_index_rebuild_running')})", "running"),
        (f"sum({of('mqstore_index_rebuild_items')})", "items"),
    ),
    lines(
        "Index rebuilds that ended, in the last hour",
        "short",
        "By outcome; published is the good one. lapsed or failed: see the log of the job.",
        (f"sum by (outcome) ({events('mqstore_index_rebuilds_total')})", "{{outcome}}"),
    ),
    lines(
        "Time since the last expiry report",
        "s",
        "Longer than the schedule of the job: see its log.",
        by_pod(f"time() - ({of('mqstore_expiry_report_seconds')} > 0)"),
    ),
    lines(
        "Not yet archived",
        "bytes",
        "Bytes of the log that retention keeps for the archive. Growing: the job does not run,"
        " docs/how-to/archive-messages.md.",
        by_pod(of("mqstore_archive_behind_bytes")),
    ),
    lines(
        "Time since the last report of the archive",
        "s",
        "Longer than the schedule of the job: see its log. The volume fills meanwhile.",
        by_pod(f"time() - ({of('mqstore_archive_mark_seconds')} > 0)"),
    ),
    lines(
        "Time since the last whole backup",
        "s",
        "Longer than the schedule, or longer than you can lose: see the log of the last backup,"
        " docs/how-to/back-up-and-restore.md.",
        by_pod(f"time() - ({of('mqstore_backup_whole_seconds')} > 0)"),
    ),
    lines(
        "Time since the last verification of backups",
        "s",
        "A backup that was never verified may not be whole: mqstore backup verify.",
        by_pod(f"time() - ({of('mqstore_backup_verified_seconds')} > 0)"),
    ),
    lines(
        "Failed backups",
        "short",
        "Pods whose last backup, or last verification, failed. Above 0: see its log,"
        " docs/how-to/back-up-and-restore.md.",
        (f"sum({of('mqstore_backup_failed')})", "backups"),
        (f"sum({of('mqstore_backup_verification_failed')})", "verifications"),
    ),
    lines(
        "Not in the last backup",
        "bytes",
        "Bytes of the log after the last message of the last whole backup: lost with the volume.",
        by_pod(
            f"clamp_min({log_offset('max')} - ignoring (bound)"
            f" {of('mqstore_backup_end_offset')}, 0)"
        ),
    ),
    lines(
        "Leases of the log",
        "short",
        "Ranges that backups, jobs and readers hold; retention keeps them. mqstore retention"
        " lists them.",
        by_pod(of("mqstore_pins")),
    ),
    lines(
        "Time since the last success, by CronJob",
        "s",
        "Backups, reports and rebuilds; from kube-state-metrics. Longer than the schedule: see"
        " the log of the last job, docs/how-to/back-up-and-restore.md.",
        (
            f"time() - max by (cronjob) (kube_cronjob_status_last_successful_time{{{CRON_JOB}}})",
            "{{cronjob}}",
        ),
    ),
    lines(
        "Failed jobs",
        "short",
        "Jobs that failed and are kept; from kube-state-metrics. See the log of each.",
        (f"sum by (job_name) (kube_job_status_failed{{{JOB}}})", "{{job_name}}"),
    ),
]
"""Rebuilds, reports, the archive and backups."""


PROCESSES: Final[list[Panel]] = [
    lines(
        "Memory",
        "bytes",
        "Resident memory, pages of mapped files included. Near the limit of the container and"
        " growing: raise the limit.",
        (
            f"sum by (pod, container) ({of('process_resident_memory_bytes')})",
            CONTAINER,
        ),
    ),
    lines(
        "CPU",
        "short",
        "Cores in use. Near the limit of the container: raise it, or add shards.",
        (f"sum by (pod, container) ({rate('process_cpu_seconds_total')})", CONTAINER),
    ),
    lines(
        "File handles",
        "percentunit",
        "Used part of the limit. Above 80 %: raise LimitNOFILE; many queues need many files.",
        (
            f"max by (pod, container) ({of('process_open_fds')} / {of('process_max_fds')})",
            CONTAINER,
        ),
    ),
    lines(
        "Mapped files",
        "bytes",
        "Bytes of mapped files, by kind. The page cache should hold those in use.",
        (f"sum by (kind) ({of('mqstore_mapped_bytes')})", "{{kind}}"),
    ),
    lines(
        "Connections",
        "short",
        "Open connections by pod and container. At the limit, further ones are refused:"
        " docs/concepts/limits.md.",
        (
            f"sum by (pod, container) ({held('connections')})",
            CONTAINER,
        ),
    ),
    lines(
        "Bytes held by requests",
        "bytes",
        "Bytes of requests and replies in memory, by pod and container.",
        (
            f"sum by (pod, container) ({held('bytes')})",
            CONTAINER,
        ),
    ),
]
"""Memory, handles and CPU."""
