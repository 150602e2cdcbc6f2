"""How the random tests run: how many stores, and where one that failed is kept."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings

from tests.compat.scripts import Script
from tests.store_copies import copy_store

EXAMPLES = int(os.environ.get("MQSTORE_COMPAT_EXAMPLES", "2"))
MESSAGES = int(os.environ.get("MQSTORE_COMPAT_MESSAGES", "60"))
KEPT = Path(__file__).parents[2] / "build" / "compat"

# No shrinking: an example costs a second, and the kept directory holds more than a smaller one.
random_stores = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    print_blob=False,
    report_multiple_bugs=False,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@contextlib.contextmanager
def example_directory(script: Script) -> Iterator[Path]:
    """A directory for the stores of one example; kept, with its script, when the test fails."""
    KEPT.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="example-", dir=KEPT))
    try:
        yield directory
    except BaseException as failure:
        (directory / "script.jsonl").write_text(script.to_json_lines(), encoding="utf-8")
        failure.add_note(f"the stores and the script are kept in {directory}")
        raise
    shutil.rmtree(directory)


def half_way(script: Script) -> Script:
    """The script, halted by another thread when about half of it is written."""
    return script.ending("haltMidWrite", halt_after_puts=max(1, len(script.operations) // 2))


def copy_of(store: Path) -> Path:
    """A copy that may be opened, and so changed, while the original stays as it was written."""
    directory = tempfile.mkdtemp(prefix=f"{store.name}-copy-", dir=store.parent)
    return copy_store(store, Path(directory) / "store")


def openable_copy_of(store: Path) -> Path:
    """
    A copy without empty files of log and queues. A RocketMQ halted while it made a file leaves one,
    and 4.9 then refuses to start on it (5.x removes an empty last one).
    """
    copy = copy_of(store)
    for part in ("commitlog", "consumequeue"):
        for file in (copy / part).rglob("*"):
            if file.is_file() and file.stat().st_size == 0:
                file.unlink()
    return copy
