"""``mqstore index rebuild``: runs the Spark job that rebuilds the index beside running services."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Final

from mqstore.cli.exit_codes import EXIT_REFUSED, refuse
from mqstore.cli.session import DryRun, Session, service_command
from mqstore.wire.environment import TOKEN_VARIABLE

if TYPE_CHECKING:
    from mqstore.client import Store

JOB: Final = "mqstore-index-rebuild"
NO_JOB: Final = (
    f"the rebuild is a Spark job, and {JOB} is not installed: pip install 'mqstore-jobs[spark]' and"
    " repeat the command; on Kubernetes: kubectl mqstore rebuild; for a store at rest:"
    f" {JOB} DIRECTORY; or remove STORE/index and restart store-writer, which then builds it"
)


@service_command
def rebuild(session: Session, dry_run: DryRun = False) -> int:
    """Rebuild the index of keys of each shard from its log. Needs a token of the role system.

    The services run meanwhile; a failed rebuild leaves the old index. The rebuild is a Spark job
    of this machine; where it is not installed, the command says how else, with exit code 2.
    The exit code is that of the job: 0 published; 2 refused; 3 a service does not reply.

    Examples:

    \b
        mqstore index rebuild --dry-run
        mqstore index rebuild --token-file SYSTEM-TOKEN
        mqstore index rebuild --shard 1
    """
    places = places_of(session, session.client.store())
    job = shutil.which(JOB)
    if job is None:
        refuse(NO_JOB)
        return EXIT_REFUSED
    options = ["--dry-run"] if dry_run else []
    if session.access.given.ca is not None:
        options += ["--ca", session.access.given.ca]
    token = session.access.token()
    variables = {} if token is None else {TOKEN_VARIABLE: token}
    done = subprocess.run(  # noqa: S603  # our own job
        [job, *options, *places], env={**os.environ, **variables}, check=False
    )
    return done.returncode


def places_of(session: Session, store: Store) -> list[str]:
    """The addresses of the chosen shard, or of all: ``QUERY,WRITER`` for each."""
    shards = {each.shard: f"{each.query_url},{each.writer_url}" for each in store.shards}
    if session.access.shard is not None and shards:
        return [shards[session.access.shard]]
    writer_url, query_url, _ = session.access.urls
    return list(shards.values()) or [f"{query_url},{writer_url}"]
