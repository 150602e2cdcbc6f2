"""``kubectl mqstore report``: a Job from the chart's CronJob, watched."""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Final

import typer

from mqstore.cli.kube.commands import EXIT_FINDINGS, EXIT_FINE, ended, refuse
from mqstore.cli.kube.kubectl import Kubectl, KubeError
from mqstore.cli.kube.release import Release

_REPORT: Final = "expiry-report"
_STARTED: Final = "{.status.containerStatuses[0].started}=true"
_ENDED: Final = "{.status.containerStatuses[0].state.terminated}"

Watch = Annotated[
    bool, typer.Option("--watch/--no-watch", help="Show its log, and wait until it has ended.")
]


def add(app: typer.Typer) -> None:
    app.command("report")(report)


def report(context: typer.Context, watch: Watch = True) -> None:
    """Report what will expire, and what nobody has consumed, now.

    Exit code: that of the job (0: nothing at risk; 1: messages are; 2: refused; 3: a service did
    not answer); 2 and 3 also where the cluster refuses, or does not answer.
    """
    raise ended(context, lambda release: _run(release, _REPORT, watch=watch))


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
    pods = f"job-name={job}"
    kubectl.run("wait", f"job/{job}", "--for=jsonpath={.status.startTime}", "--timeout=60s")
    _wait_for_start(kubectl, job, pods)
    kubectl.passed_on("logs", "--follow", f"job/{job}")
    kubectl.run("wait", "pods", "-l", pods, f"--for=jsonpath={_ENDED}", "--timeout=24h")
    return _exit_code(kubectl.items("pods", pods))


def _wait_for_start(kubectl: Kubectl, job: str, pods: str) -> None:
    """Until its container runs or has ended; KubeError with what holds it up."""
    try:
        kubectl.run("wait", "pods", "-l", pods, f"--for=jsonpath={_STARTED}", "--timeout=300s")
    except KubeError:
        if any(_terminated(pod) is not None for pod in kubectl.items("pods", pods)):
            return
        events = kubectl.json("get", "events", "--field-selector", "involvedObject.kind=Pod")
        said = [
            each["message"]
            for each in events["items"]
            if each["involvedObject"]["name"].startswith(job)
        ]
        why = said[-1] if said else "no event says why"
        raise KubeError(f"job {job} does not start: {why}") from None


def _exit_code(pods: list[Any]) -> int:
    codes = [code for pod in pods if (code := _terminated(pod)) is not None]
    if not codes:
        refuse("the job's pod is gone; see its events with kubectl describe job")
        return EXIT_FINDINGS
    return codes[-1]


def _terminated(pod: Any) -> int | None:
    for each in pod["status"].get("containerStatuses", ()):
        ended_with = each["state"].get("terminated")
        if ended_with is not None:
            return int(ended_with["exitCode"])
    return None
