"""``kubectl mqstore report`` and ``rebuild``: a Job from one of the chart's CronJobs, watched."""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Final

import typer

from mqstore.cli.kube.commands import EXIT_FINDINGS, EXIT_FINE, awaited, ended, refuse
from mqstore.cli.kube.kubectl import Kubectl, KubeError
from mqstore.cli.kube.release import Release

_REPORT: Final = "expiry-report"
_REBUILD: Final = "index-rebuild"
START_S: Final = 300.0
"""For a node with room, and the image."""
END_S: Final = 30.0
"""From the end of its log to its exit code."""

Watch = Annotated[
    bool, typer.Option("--watch/--no-watch", help="Show its log, and wait until it has ended.")
]


def add(app: typer.Typer) -> None:
    app.command("report")(report)
    app.command("rebuild")(rebuild)


def report(context: typer.Context, watch: Watch = True) -> None:
    """Report what will expire, and what nobody has consumed, now.

    Exit code: that of the job (0: nothing at risk; 1: messages are; 2: refused; 3: a service did
    not answer); 2 and 3 also where the cluster refuses, or does not answer.
    """
    raise ended(context, lambda release: _run(release, _REPORT, watch=watch))


def rebuild(context: typer.Context, watch: Watch = True) -> None:
    """Make the index of every shard anew from its log, while the shards go on.

    Exit code: that of the job (0: published; 2: refused; 3: a service did not answer); 2 and 3 also
    where the cluster refuses, or does not answer.
    """
    raise ended(context, lambda release: _run(release, _REBUILD, watch=watch))


def _run(release: Release, kind: str, *, watch: bool) -> int:
    cron_job = f"{release.name}-{kind}"
    job = f"{cron_job}-{secrets.token_hex(3)}"
    print(release.kubectl.run("create", "job", f"--from=cronjob/{cron_job}", job).strip())
    if not watch:
        print(f"see it with: kubectl logs -f job/{job}")
        return EXIT_FINE
    return _watched(release.kubectl, job)


def _watched(kubectl: Kubectl, job: str) -> int:
    """Its log as it comes, then its exit code."""
    if awaited(lambda: _state(kubectl, job, "running", "terminated"), START_S) is None:
        raise KubeError(f"job {job} does not start: {_why(kubectl, job)}")
    kubectl.passed_on("logs", "--follow", f"job/{job}")
    terminated = awaited(lambda: _state(kubectl, job, "terminated"), END_S)
    if terminated is None:
        refuse(f"the log of job {job} ended before it did; see it with: kubectl describe job {job}")
        return EXIT_FINDINGS
    return int(terminated["exitCode"])


def _state(kubectl: Kubectl, job: str, *states: str) -> Any:
    """What its container's state says where it is one of these."""
    for pod in kubectl.items("pods", f"job-name={job}"):
        for container in pod["status"].get("containerStatuses", ()):
            for state in states:
                if state in container["state"]:
                    return container["state"][state]
    return None


def _why(kubectl: Kubectl, job: str) -> str:
    """What the newest warning of the job or its pod says, else their newest event."""
    events = [
        event
        for event in kubectl.json("get", "events")["items"]
        if event["involvedObject"]["name"].startswith(job)
    ]
    if not events:
        return "no event says why"
    return str(max(events, key=_urgency)["message"])


def _urgency(event: Any) -> tuple[bool, str]:
    """The scheduler's events have another field for their time."""
    last = event.get("lastTimestamp") or event.get("eventTime") or ""
    return event["type"] == "Warning", last
