"""``kubectl mqstore report`` and ``rebuild``: start and watch a Job of a CronJob of the chart."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated, Any, Final

import typer

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK, refuse
from mqstore.cli.kube.commands import exit_of, poll_until_true
from mqstore.cli.kube.kubectl import Kubectl, KubeError
from mqstore.cli.kube.release import Release
from mqstore.cli.session import DryRun

_REPORT: Final = "expiry-report"
_REBUILD: Final = "index-rebuild"
_INSTALLED_BY: Final = {
    _REPORT: "jobs.output.uri or jobs.output.existingClaim",
    _REBUILD: "jobs.indexRebuild.enabled=true",
}
"""The value of the chart that installs each CronJob."""
_RUN: Final = "run-"
"""Begins the number in the name of a manual run."""
_ENDED: Final = {"Complete", "SuccessCriteriaMet", "Failed"}
"""Conditions of a job that has ended its work."""
START_S: Final = 300.0
"""Longest wait for a pod to be scheduled and its image to be pulled."""
END_S: Final = 30.0
"""Longest wait for the exit code after the end of the log."""

Watch = Annotated[
    bool, typer.Option("--watch/--no-watch", help="Print the job's log and wait for its end.")
]


def add(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("report")(report)
    app.command("rebuild")(rebuild)


def report(context: typer.Context, watch: Watch = True, dry_run: DryRun = False) -> None:
    """Run the job that reports which messages expire, and which of them no group has consumed.

    Exit code: that of the job (0: nothing at risk; 1: messages are; 2: refused; 3: a service did
    not answer); 2 and 3 also if the cluster refuses or does not answer.

    Examples:

    \b
        kubectl mqstore report
        kubectl mqstore report --no-watch
    """
    raise exit_of(context, lambda release: _run(release, _REPORT, watch=watch, dry_run=dry_run))


def rebuild(context: typer.Context, watch: Watch = True, dry_run: DryRun = False) -> None:
    """Rebuild the index of every shard from its log, while the shards serve requests.

    Exit code: that of the job (0: published; 2: refused; 3: a service did not answer); 2 and 3 also
    if the cluster refuses or does not answer.

    Examples:

    \b
        kubectl mqstore rebuild --dry-run
        kubectl mqstore rebuild
    """
    raise exit_of(context, lambda release: _run(release, _REBUILD, watch=watch, dry_run=dry_run))


def _run(release: Release, kind: str, *, watch: bool, dry_run: bool) -> int:
    cron_job = f"{release.name}-{kind}"
    if not release.kubectl.run("get", "cronjob", cron_job, "--ignore-not-found", "-o", "name"):
        raise KubeError(
            f"{release.instance} has no CronJob {cron_job}: "
            f"set {_INSTALLED_BY[kind]} by helm upgrade"
        )
    jobs = release.kubectl.items("jobs", release.selector(kind))
    if running := _running(jobs):
        raise KubeError(
            f"job {running} runs, and a second one would do the same work. See it with: "
            f"kubectl logs -f job/{running}; or end it: kubectl delete job {running}"
        )
    if dry_run:
        print(f"would create a Job from the CronJob {cron_job}")
        return EXIT_OK
    job = _next_name(cron_job, jobs)
    print(_create(release.kubectl, cron_job, job))
    if not watch:
        print(f"see it with: kubectl logs -f job/{job}")
        return EXIT_OK
    return _watched(release.kubectl, job)


def _running(jobs: Iterable[Any]) -> str:
    """Name of the first job that has not ended; empty without one."""
    for job in jobs:
        conditions = job.get("status", {}).get("conditions", ())
        if not any(each["type"] in _ENDED and each["status"] == "True" for each in conditions):
            return str(job["metadata"]["name"])
    return ""


def _next_name(cron_job: str, jobs: Iterable[Any]) -> str:
    """Name of the next manual run. Runs that start in the same instant choose the same name, which
    the cluster gives to one of them."""
    pattern = re.compile(re.escape(f"{cron_job}-{_RUN}") + r"([0-9]{1,9})")
    found = (pattern.fullmatch(str(job["metadata"]["name"])) for job in jobs)
    return f"{cron_job}-{_RUN}{max((int(each[1]) for each in found if each), default=0) + 1}"


def _create(kubectl: Kubectl, cron_job: str, job: str) -> str:
    """Create the job, and return kubectl's reply. Raises KubeError."""
    try:
        return kubectl.run("create", "job", f"--from=cronjob/{cron_job}", job).strip()
    except KubeError as error:
        if "already exists" not in str(error):
            raise
        raise KubeError(
            f"another run of {cron_job} started in this moment, as job {job}; see it with: "
            f"kubectl logs -f job/{job}"
        ) from error


def _watched(kubectl: Kubectl, job: str) -> int:
    """Print why a job waits, then its log as it is written. Returns the job's exit code."""
    waiting = _Waiting(kubectl, job)
    if not poll_until_true(waiting.has_started, START_S):
        raise KubeError(
            f"job {job} does not start: {waiting.why or 'no event says why'}; "
            f"it may start later (kubectl logs -f job/{job}); or: kubectl delete job {job}"
        )
    with suppress(KubeError):  # the job goes on without a reader of its log
        kubectl.print_output("logs", "--follow", f"job/{job}")
    terminated = poll_until_true(lambda: _state(kubectl, job, "terminated"), END_S)
    if terminated is None:
        refuse(f"the log of job {job} ended before it did; see it with: kubectl describe job {job}")
        return EXIT_FINDINGS
    return _exit_code(terminated)


def _exit_code(terminated: Any) -> int:
    """The exit code of a container that ended; of a job with findings, which ends with 0 in
    Kubernetes, the code in its message."""
    code = int(terminated["exitCode"])
    if not code:
        with suppress(ValueError, LookupError, TypeError):
            return int(json.loads(terminated.get("message", ""))["exitCode"])
    return code


def _state(kubectl: Kubectl, job: str, *states: str) -> Any:
    """The state of the job's container if it is one of ``states``, else None: of the newest pod, as
    a job tries again after a failure."""
    pods = kubectl.items("pods", f"job-name={job}")
    pods.sort(key=lambda pod: str(pod.get("metadata", {}).get("creationTimestamp", "")))
    for pod in pods[-1:]:
        for container in pod["status"].get("containerStatuses", ()):
            for state in states:
                if state in container["state"]:
                    return container["state"][state]
    return None


class _Waiting:
    """Waits for a job to start, and prints each new reason for the wait once."""

    def __init__(self, kubectl: Kubectl, job: str) -> None:
        self._kubectl = kubectl
        self._job = job
        self.why = ""

    def has_started(self) -> bool:
        """Whether the job's container runs or has run. Raises KubeError."""
        if _state(self._kubectl, self._job, "running", "terminated") is not None:
            return True
        why = self._reason()
        if why and why != self.why:
            print(f"job {self._job} waits: {why}", file=sys.stderr, flush=True)
            self.why = why
        return False

    def _reason(self) -> str:
        """The reason why the job's pod waits, else the newest warning or event of job or pod."""
        for pod in self._kubectl.items("pods", f"job-name={self._job}"):
            if reason := _reason_of(pod["status"]):
                return reason
        events = [
            event
            for event in self._kubectl.json("get", "events")["items"]
            if event["involvedObject"]["name"].startswith(self._job)
        ]
        return str(max(events, key=_urgency)["message"]) if events else ""


def _reason_of(status: Any) -> str:
    """The reason why a pod is not scheduled or its containers wait; empty if it is unknown."""
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"its pod is not scheduled: {condition.get('message', condition.get('reason'))}"
    for container in status.get("containerStatuses", ()):
        waiting = container["state"].get("waiting")
        if waiting and "message" in waiting:
            return f"{waiting['reason']}: {waiting['message']}"
    return ""


def _urgency(event: Any) -> tuple[bool, str]:
    """Sort key of events: warnings last, then by time, which the scheduler has in ``eventTime``."""
    last = event.get("lastTimestamp") or event.get("eventTime") or ""
    return event["type"] == "Warning", last
