"""Problems: every type of error, with its cause and its remedy."""

from __future__ import annotations

from docs.generate.markdown import code, table
from mqstore.wire.problems import REGISTRY


def problems() -> str:
    """A section for each type, by status and name, after a table of all."""
    kinds = sorted(REGISTRY.values(), key=lambda kind: (kind.status, kind.name))
    overview = table(
        ("status", "problem", "title"),
        ((str(kind.status), f"[`{kind.name}`](#{kind.name})", kind.title) for kind in kinds),
    )
    sections = (
        f"## {kind.name}\n\n**{kind.status} {kind.title}.** {kind.when}\n\n"
        f"- **What to do:** {kind.remedy}\n- **Type:** {code(kind.urn)}{_retry(kind.retry_after_s)}"
        for kind in kinds
    )
    return "\n\n".join((overview, *sections))


def _retry(seconds: int | None) -> str:
    return "" if seconds is None else f"\n- **Retry-After:** {seconds} s"
