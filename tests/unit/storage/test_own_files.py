from __future__ import annotations

from pathlib import Path

from mqstore.storage.own_files import BY_NAME, OWN_FILES
from mqstore.storage.paths import StorePaths


def test_each_path_of_ours_is_declared() -> None:
    paths = StorePaths(Path("/store"))
    names = {
        path.name
        for name in dir(StorePaths)
        if isinstance(path := getattr(paths, name), Path) and path.parent == paths.ours
    }
    journals = {f"{table}.journal" for table in ("topics", "subscriptionGroup", "consumerFilter")}
    assert names == {each.name.rstrip("/") for each in OWN_FILES} - {"*.journal"}
    assert all(
        paths.journal_of(each.replace(".journal", ".json")).name == each for each in journals
    )


def test_each_sealed_file_says_what_its_damage_means() -> None:
    assert len(BY_NAME) == len(OWN_FILES)
    for each in OWN_FILES:
        assert each.if_unreadable.startswith("so ") is each.is_sealed, each.name
