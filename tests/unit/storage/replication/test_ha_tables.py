"""The text of tables that a leader sends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.replication import ha_tables
from mqstore.storage.replication.ha_frames import FrameInvalid
from mqstore.storage.replication.ha_tables import TablesTooLong
from mqstore.storage.status import TableBatch, TableName, TableUpdate

UPDATES = st.builds(
    TableUpdate, st.sampled_from(TableName), st.text(), st.booleans(), st.booleans()
)


@given(st.integers(0, 1 << 62), st.lists(UPDATES, max_size=4))
def test_changes_are_read_as_they_were_written(version: int, updates: list[TableUpdate]) -> None:
    batch = TableBatch(version, tuple(updates))
    assert ha_tables.decode(ha_tables.encode(batch)) == batch


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b'[1,[["unknown","",true,true]]]'])
def test_a_text_that_has_no_changes_is_an_error(text: bytes) -> None:
    with pytest.raises(FrameInvalid):
        ha_tables.decode(text)


def test_tables_that_are_too_long_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ha_tables, "TABLES_SIZE_MAX", 100)
    update = TableUpdate(TableName.TOPICS, "x" * 100, True, True)
    with pytest.raises(TablesTooLong):
        ha_tables.encode(TableBatch(1, (update,)))
