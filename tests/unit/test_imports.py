"""Modules of one circle cannot be read, tested or moved alone."""

from __future__ import annotations

import tomllib
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).parents[2]
OF_TYPES: Final = {
    ("storage.queues.due_fillers", "storage.queues.consume_queue"),
    ("storage.queues.lost_files", "storage.queues.consume_queue"),
    ("storage.replication.leader_session", "storage.replication.connections"),
    ("writer.replication.replica", "writer.service"),
}
"""Imports for type checkers alone that close a circle; no further one is added."""


def test_no_module_imports_itself_through_others() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = settings["tool"]["importlinter"]["root_packages"]
    graph = grimp.build_graph(*packages, cache_dir=None)
    for importer, imported in OF_TYPES:
        graph.remove_import(importer=f"mqstore.{importer}", imported=f"mqstore.{imported}")
    TopologicalSorter(
        {each: graph.find_modules_directly_imported_by(each) for each in graph.modules}
    ).prepare()
