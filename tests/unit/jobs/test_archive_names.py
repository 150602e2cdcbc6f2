"""Names of the archive's directories."""

from __future__ import annotations

import pytest

from mqstore.jobs.archive.names import NAME_LENGTH_MAX, directory_of


def test_a_short_name_is_percent_encoded() -> None:
    assert directory_of("%RETRY%g") == "by_topic=%25RETRY%25g"


@pytest.mark.parametrize("length", [90, 91, 92, 200, 248])
def test_a_long_name_is_bounded_and_stays_its_own_topic(length: int) -> None:
    topics = ["%RETRY%" + "%g" * length + end for end in ("a", "b")]
    names = [directory_of(topic) for topic in topics]
    assert len(set(names)) == 2
    assert all(len(name) <= NAME_LENGTH_MAX for name in names)
