"""The files of ours in a store's root."""

from __future__ import annotations

from docs.generate.markdown import code, table
from mqstore.storage.directory import OWN_FILES


def own_files() -> str:
    """A table of the files."""
    rows = [
        (
            code(each.name),
            each.content,
            "yes" if each.is_sealed else "",
            each.backup.value,
            each.if_unreadable,
        )
        for each in OWN_FILES
    ]
    return table(("file", "content", "sealed", "backup", "when it cannot be read"), rows)
