"""Which shard a unique key belongs to, and how few keys another shard moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.service.key_shards import jump_hash, shard_of, shards_to_visit
from mqstore.wire import unique_keys

KEYS = [f"order-{number}" for number in range(2_000)]


@pytest.mark.parametrize("shard", [0, 1, 1023, 0xFFFF_FFFF])
def test_a_generated_key_names_its_shard_whatever_the_shards_are(shard: int) -> None:
    key = unique_keys.generate(shard)
    assert (len(key), unique_keys.shard_of(key), shard_of(key, [5])) == (32, shard, shard)


def test_a_generated_key_without_a_shard_is_chosen_by_hash() -> None:
    key = unique_keys.generate(None)
    assert (len(key), unique_keys.shard_of(key)) == (32, None)
    assert shard_of(key, [3]) == 3


@given(st.text())
def test_any_text_has_a_shard(key: str) -> None:
    assert shard_of(key, [0, 2, 7]) in (0, 2, 7)
    assert shard_of(f"{key}~1", [0, 2, 7]) == shard_of(key, [0, 2, 7])


def test_the_mapping_never_changes_between_releases() -> None:
    """Shards of two releases, and applications that compute it, have to agree."""
    assert [shard_of(key, [0, 1, 2]) for key in KEYS[:8]] == [1, 2, 1, 1, 0, 1, 0, 1]
    vectors = {(1, 1): 0, (42, 57): 43, (0xDEAD10CC, 666): 361, (256, 1024): 520}
    assert {each: jump_hash(*each) for each in vectors} == vectors


def test_one_more_shard_takes_its_share_and_moves_nothing_else() -> None:
    moved = [key for key in KEYS if shard_of(key, [0, 1, 2]) != shard_of(key, [0, 1])]
    assert {shard_of(key, [0, 1, 2]) for key in moved} == {2}
    assert len(KEYS) / 4 < len(moved) < len(KEYS) / 2


def test_a_key_that_moved_visits_its_former_shard_first() -> None:
    for key in KEYS:
        visits = shards_to_visit(key, [0, 1, 2], [[0], [0, 1]])
        assert visits[-1] == shard_of(key, [0, 1, 2])
        assert visits[0] == shard_of(key, [0])
        assert shard_of(key, [0, 1]) in visits
        assert len(set(visits)) == len(visits)
        assert shards_to_visit(key, [0, 1, 2], []) == visits[-1:]
