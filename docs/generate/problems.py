"""Problems: every type of error, with its cause and its remedy."""

from __future__ import annotations

from typing import Final

from docs.generate.markdown import code, see, table
from mqstore.wire.problems import REGISTRY, ProblemType

PAGES: Final = {
    "disk-full": "how-to/free-a-full-disk.md",
    "disk-refuses": "how-to/recover-from-a-failed-sync.md",
    "message-damaged": "how-to/repair-damage.md",
    "message-suspect": "how-to/repair-damage.md",
    "overloaded": "concepts/limits.md",
    "store-failed": "how-to/recover-from-a-failed-sync.md",
    "store-read-only": "how-to/open-a-refused-store.md",
    "too-many-files": "how-to/open-a-refused-store.md",
    "transaction-decided": "how-to/resolve-stuck-transactions.md",
    "unique-key-taken": "concepts/deduplication.md",
    "writes-paused": "how-to/pause-writes.md",
}
"""The page of ``docs`` that explains a problem further."""


def problems() -> str:
    """A section for each type, by status and name, after a table of all."""
    kinds = sorted(REGISTRY.values(), key=lambda kind: (kind.status, kind.name))
    overview = table(
        ("status", "problem", "title"),
        ((str(kind.status), f"[`{kind.name}`](#{kind.name})", kind.title) for kind in kinds),
    )
    return "\n\n".join((overview, *map(_section, kinds)))


def _section(kind: ProblemType) -> str:
    remedy = f"{kind.remedy}{see(PAGES.get(kind.name))}"
    return (
        f"## {kind.name}\n\n**{kind.status} {kind.title}.** {kind.when}\n\n"
        f"- **What to do:** {remedy}\n- **Type:** {code(kind.urn)}{_retry(kind.retry_after_s)}"
    )


def _retry(seconds: int | None) -> str:
    return "" if seconds is None else f"\n- **Retry-After:** {seconds} s"
