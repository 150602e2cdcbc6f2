"""``mqstore-index-rebuild``: the IndexFiles of stores made anew from their logs alone.

A store at rest: the job is its one writer meanwhile, and brings its queues up to the log as well.
Where a store-writer has it open, the job sends that what it makes, and the writer goes on.
"""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from mqstore.jobs import command
from mqstore.jobs.job_options import DryRun, Shards, TokenFile
from mqstore.jobs.job_run import JobRun
from mqstore.jobs.rebuild.settings import Mode, RebuildSettings
from mqstore.storage.formats import StoreFormat


class FormatName(StrEnum):
    """The values of ``--format``."""

    V4_9 = "4.9"
    V5_X = "5.x"


def rebuild(
    shards: Shards,
    dry_run: DryRun = False,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Compare with the existing index; change nothing."),
    ] = False,
    store_format: Annotated[
        FormatName | None,
        typer.Option("--format", help="RocketMQ version; 5.x indexes TAGS. Default: the store's."),
    ] = None,
    hash_slots: Annotated[
        int | None, typer.Option(min=1, help="maxHashSlotNum (default: the store's)")
    ] = None,
    index_num: Annotated[
        int | None, typer.Option(min=2, help="maxIndexNum (default: the store's)")
    ] = None,
    disk_ratio: Annotated[
        int,
        typer.Option(
            "--disk-max-used-space-ratio", min=1, max=100, help="Percent that staging may fill."
        ),
    ] = 75,
    name: Annotated[
        str,
        typer.Option(help="Name of this run in the writer's reports; default: host and process."),
    ] = "",
    token_file: TokenFile = None,
    ca: Annotated[str | None, typer.Option(help="CA bundle for https addresses (PEM).")] = None,
) -> None:
    """Rebuild the index of each SHARD from its log; the summary is one line of JSON.

    Exit code 0: done, or nothing differs; 1: --verify found differences; 2: refused; 3: a service
    does not answer.
    """
    settings = RebuildSettings(
        mode=Mode.DRY_RUN if dry_run else Mode.VERIFY if verify else Mode.PUBLISH,
        store_format=None if store_format is None else StoreFormat(store_format.value),
        hash_slots=hash_slots,
        index_num=index_num,
        disk_ratio=disk_ratio,
        name=name,
        token_file=token_file,
        ca=ca,
    )

    def job() -> int:
        """Run the rebuild; returns the exit code."""
        from mqstore.jobs.rebuild.shard import rebuild_shard  # slow, and not needed for help
        from mqstore.jobs.rebuild.spark_build import SPARK_SETTINGS

        run = JobRun("index-rebuild", None, **SPARK_SETTINGS)
        return run.over(shards, partial(rebuild_shard, settings))

    raise typer.Exit(command.run(job))


def main() -> None:
    """Run the job with the arguments of the process."""
    typer.run(rebuild)


if __name__ == "__main__":
    main()
