"""The header by which a read names the offset that it needs, by shard."""

from __future__ import annotations

import pytest

from mqstore.service.problems import Problem
from mqstore.service.read_conditions import AT_LEAST, has_condition, least_offset


@pytest.mark.parametrize(
    ("values", "offset"),
    [
        ([], None),
        ([b"1:7"], None),
        ([b"0:7"], 7),
        ([b"1:9,0:7, 0:8"], 8),
        ([b"0:7", b"0:3"], 7),
        ([b"0:0"], 0),
    ],
)
def test_a_shard_looks_at_its_own_offset(values: list[bytes], offset: int | None) -> None:
    headers = [(b"accept", b"*/*"), *((AT_LEAST, each) for each in values)]
    assert least_offset(headers, 0) == offset
    assert has_condition(headers) == bool(values)


@pytest.mark.parametrize(
    "value", [b"", b"7", b"0:", b"0:-1", b"0:1;1:2", b"a:1", b"0:" + b"9" * 20]
)
def test_another_form_is_refused(value: bytes) -> None:
    with pytest.raises(Problem, match="SHARD:OFFSET"):
        least_offset([(AT_LEAST, value)], 0)
