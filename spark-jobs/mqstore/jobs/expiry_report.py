"""The expiry report: which messages retention will delete, which readers lose them, disk usage.

``python -m mqstore.jobs.expiry_report SHARD… --out PLACE``; see docs/jobs.md. It only reads the
shards; exit code 1 says that retention will delete messages that a reader has not consumed, or
that the disk fills.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any, Final

import typer

from mqstore.jobs import command
from mqstore.jobs.errors import EXIT_FINDINGS, EXIT_FINE, SegmentGone, WrongUsage
from mqstore.jobs.expiry import facts_at_path, facts_at_url
from mqstore.jobs.expiry.facts import ShardFacts
from mqstore.jobs.expiry.losses import Places
from mqstore.jobs.expiry.report import ExpiryReport
from mqstore.jobs.job_options import DryRun, TokenFile
from mqstore.jobs.job_run import JobRun, Outcome, Report
from mqstore.jobs.output import Output
from mqstore.jobs.shard_place import ShardPlace

HORIZONS: Final = "24,72,168"
HOURS_MAX: Final = 24 * 366 * 100
NOT_ARCHIVED: Final = ("corruptStretches", "missedBytes")
"""Fields of an archive's report; a value above 0 is a finding."""
RISKS_SHOWN: Final = 20
"""Maximum number of risks in the summary on stdout."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one run over any number of shards."""

    out: Output
    horizons: tuple[int, ...]
    what_if: tuple[int, ...]
    settings: Path | None
    token_file: str | None
    ca: str | None
    dry_run: bool
    archive: Output | None = None


@app.command()
def main(
    shards: Annotated[
        list[str],
        typer.Argument(
            metavar="SHARD...",
            help="DIRECTORY, or QUERY_ADDRESS,WRITER_ADDRESS; also DIRECTORY,WRITER_ADDRESS. If one"
            " fails, the others finish.",
        ),
    ],
    out: Annotated[
        str, typer.Option(help="Directory or URL (any that fsspec supports) for the reports.")
    ],
    horizons: Annotated[str, typer.Option(help="Hours ahead, separated by commas.")] = HORIZONS,
    what_if_hours: Annotated[
        str, typer.Option(help="Other values of fileReservedTime, separated by commas.")
    ] = "",
    settings: Annotated[
        Path | None,
        typer.Option(help="A broker.conf with the rule in force, for a broker's own directory."),
    ] = None,
    token_file: TokenFile = None,
    ca: Annotated[str | None, typer.Option(help="CA bundle for https addresses (PEM).")] = None,
    archive: Annotated[
        str | None,
        typer.Option(help="Directory or URL for an export of expiring segments, as Parquet."),
    ] = None,
    completed: Annotated[
        Path | None,
        typer.Option(
            help="File for the exit code of a complete report, 0 or 1; the command then ends with"
            " 0, so that a failure of the job differs from findings.",
            metavar="FILE",
        ),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Report which messages retention will delete, which readers lose them, and disk usage.

    Exit code 0: no reader loses messages, and the disk does not fill; 1: a reader does, the disk
    reaches a level at which the oldest messages are deleted or messages are refused, or an archive
    lacks messages; 2: refused; 3: a service does not answer.
    """

    def job() -> int:
        """Run the report; returns the exit code."""
        options = Options(
            out=Output(out),
            horizons=hours_of("horizons", horizons),
            what_if=hours_of("what-if-hours", what_if_hours) if what_if_hours else (),
            settings=settings,
            token_file=token_file,
            ca=ca,
            dry_run=dry_run,
            archive=None if archive is None else Output(archive),
        )
        for place in () if dry_run else filter(None, (options.out, options.archive)):
            place.check()
        code = JobRun("expiry-report").over(shards, partial(report_shard, options=options))
        if completed is None or code > EXIT_FINDINGS:
            return code
        completed.write_text(json.dumps({"exitCode": code}), encoding="ascii")
        return EXIT_FINE

    raise typer.Exit(command.run(job))


def hours_of(option: str, text: str) -> tuple[int, ...]:
    """Parse a list of hours; ascending, without duplicates. Raises WrongUsage."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isascii() and word.isdigit() for word in words):
        raise WrongUsage(f"--{option} {text!r} is no list of hours; write e.g. {HORIZONS}")
    found = tuple(sorted({int(word) for word in words}))
    if found[-1] > HOURS_MAX:
        raise WrongUsage(f"--{option}: {found[-1]} hours are more than 100 years")
    return found


def report_shard(run: JobRun, shard: str, *, options: Options) -> Outcome:
    """Make and publish the report of one shard; send its summary to the writer, if one is named.

    Raises JobError, ClientError.
    """
    place = ShardPlace.of(shard, options.token_file, options.ca)
    facts = _facts(place, options)
    log_bytes = facts.max_offset - facts.min_offset
    if options.dry_run:
        return Outcome(_would(facts, options))
    report = counted(run, place, facts, options)
    files = published(report, options.out)
    fields = summary(report, options.out)
    if place.writer_url is not None:
        with place.client() as client:
            client.put_expiry_report(fields)
    is_found = not report.is_fine
    if options.archive is not None:
        fields["archive"] = _archived(run, place, facts, report, options.archive)
        is_found = is_found or any(fields["archive"][name] > 0 for name in NOT_ARCHIVED)
    code = EXIT_FINDINGS if is_found else EXIT_FINE
    return Outcome(fields | {"files": files}, code, log_bytes)


def _would(facts: ShardFacts, options: Options) -> Report:
    planned = facts.planned(facts.pins, facts.config.file_reserved_time)
    until_ms = facts.now_ms + options.horizons[-1] * 3_600_000
    going = [
        each
        for each in planned.segments
        if each.not_before_ms is not None and each.not_before_ms <= until_ms
    ]
    would: Report = {
        "wouldRead": facts.max_offset - facts.min_offset,
        "segments": len(facts.segments),
        "out": options.out.url,
    }
    if options.archive is not None:
        would["wouldArchive"] = {
            "place": options.archive.url,
            "segments": len(going),
            "bytes": sum(each.size for each in going),
        }
    return would


def _archived(
    run: JobRun, place: ShardPlace, facts: ShardFacts, report: ExpiryReport, out: Output
) -> Report:
    """Export the segments that the rule in force deletes within the longest horizon."""
    from mqstore.jobs.archive.archiving import archive, due
    from mqstore.jobs.archive.keeper import keeper_of
    from mqstore.jobs.read_options import ReadOptions

    end = max(each.end_offset for each in report.expiring if each.is_in_force)
    with keeper_of(place, out.place, facts.max_offset) as keeper:
        seen = ReadOptions(place.where, token_file=place.token_file, ca=place.ca).look()
        first = seen.segments[0].start if seen.segments else facts.max_offset
        archived = first if (known := keeper.archived()) is None else known
        done = archive(run, seen, due(seen.segments, archived, end), out, facts.name, keeper)
        if keeper.archived() is None:  # nothing was due: from now on retention waits for the next
            keeper.advance(first)
        return done | {"missedBytes": max(0, first - archived)}


def _facts(place: ShardPlace, options: Options) -> ShardFacts:
    """The facts of a shard; with an archive, without the hold of segments not archived yet."""
    facts = _looked(place, options)
    if options.archive is None:
        return facts
    return replace(facts, pins=[hold for hold in facts.pins if hold.kind != "archive"])


def _looked(place: ShardPlace, options: Options) -> ShardFacts:
    if not place.is_url:
        return facts_at_path.look(Path(place.where), options.settings)
    if options.settings is not None:
        raise WrongUsage("--settings is for directories; store-writer says its own rule")
    with place.client() as client:
        return facts_at_url.look(client)


def counted(run: JobRun, place: ShardPlace, facts: ShardFacts, options: Options) -> ExpiryReport:
    """Count the messages of the log with Spark and make the report. Raises JobError."""
    from mqstore.jobs.commitlog import commitlog  # only now is Spark needed
    from mqstore.jobs.expiry import counting, making
    from mqstore.jobs.expiry.facts import TRANSACTION_GROUP
    from mqstore.jobs.expiry.log_counts import LogCounts
    from mqstore.storage.formats import HALF_TOPIC, OP_TOPIC

    places = Places.of(facts)
    with run.stage(f"counting the messages in the log of {facts.name}") as spark:
        read = partial(commitlog, spark, place.where, token_file=place.token_file, ca=place.ca)
        messages = read(columns=counting.COLUMNS)

        def undecided() -> list[Any]:
            """Count the undecided half messages."""
            decided = facts.consumed.get((TRANSACTION_GROUP, HALF_TOPIC), {})
            records = read(columns=counting.HALF_COLUMNS, topic=[HALF_TOPIC, OP_TOPIC])
            return counting.undecided(records, decided.get(0, 0))

        counts = LogCounts(counting.counted(spark, messages, places.marks, facts.now_ms))
        request = making.ReportRequest(options.horizons, options.what_if)
        report = making.make(facts, places, counts, undecided, request, place.where)
    _require_all(place, facts)
    return report


def _require_all(place: ShardPlace, facts: ShardFacts) -> None:
    """Raise SegmentGone if retention deleted a segment before Spark counted it."""
    from mqstore.jobs.read_options import ReadOptions

    seen = ReadOptions(place.where, token_file=place.token_file, ca=place.ca).look().segments
    if facts.segments and seen and seen[0].start > facts.min_offset:
        name = facts.segments[0].name
        raise SegmentGone(
            f"segment {name} was deleted while it was read: retention took it; run the job again,"
            " or keep the range with a pin"
        )


def published(report: ExpiryReport, out: Output) -> list[str]:
    """Write the report in all formats and delete older ones of the same shard and day.

    Returns the names of the files. Raises OutputRefused.
    """
    from mqstore.jobs.expiry import page, tables

    day = f"report_date={report.date}"
    files: dict[str, Callable[[IO[bytes]], object]] = {
        f"{name}/{day}/{report.base_name}.parquet": partial(tables.write, table)
        for name, table in tables.tables(report).items()
    }
    texts = {
        "json": report.model_dump_json(by_alias=True, indent=1),
        "html": page.html(report),
    }
    for suffix, text in texts.items():
        files[f"reports/{day}/{report.base_name}.{suffix}"] = _writer(text.encode())
    directories = {name.rpartition("/")[0] for name in files}
    known = {name for directory in directories for name in out.names(directory)}
    out.publish(files)
    mine = f"/{report.shard}_"
    out.drop(name for name in known - files.keys() if mine in name)
    return sorted(files)


def _writer(content: bytes) -> Callable[[IO[bytes]], object]:
    return lambda file: file.write(content)


def summary(report: ExpiryReport, out: Output) -> Report:
    """The summary for stdout and store-writer; its size does not depend on the shard's."""
    risks = report.risks_in_force
    return {
        "name": report.shard,
        "madeMs": report.made_ms,
        "atRisk": report.at_risk,
        "diskFills": report.disk_fills,
        "messages": report.messages,
        "minOffset": report.min_offset,
        "maxOffset": report.max_offset,
        "expiring": [each.model_dump(by_alias=True) for each in report.expiring],
        "risks": [each.model_dump(by_alias=True) for each in risks[:RISKS_SHOWN]],
        "risksMore": max(0, len(risks) - RISKS_SHOWN),
        "out": out.url,
    }


if __name__ == "__main__":
    app()
