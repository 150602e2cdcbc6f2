"""The bloom filter; tests/compat/test_filters.py compares every position with RocketMQ's."""

from __future__ import annotations

from mqstore.storage.filter import bloom
from mqstore.storage.filter.bloom import BloomFilter


def test_rocketmqs_defaults_make_112_bits_and_three_hashes() -> None:
    assert BloomFilter.of(20, 32) == BloomFilter(hashes=3, bits=112)


def test_the_hash_is_guavas_murmur3_128() -> None:
    """As published for murmur3 x64 128 with seed 0."""
    assert bloom.murmur3(b"") == 0
    assert bloom.murmur3(b"hello") == 0xCBD8A7B341BD9B02
    long = b"The quick brown fox jumps over the lazy dog"
    assert bloom.murmur3(long) == 0xE34BBC7BBC071B6C


def test_what_was_added_is_there_and_little_else() -> None:
    filter_ = BloomFilter.of(20, 32)
    bitmap = filter_.new_bitmap()
    assert len(bitmap) == 14
    added = [filter_.positions(f"group{n}#topic") for n in range(16)]
    for positions in added:
        bloom.add(bitmap, positions)
    assert all(bloom.has(bitmap, positions) for positions in added)
    others = [filter_.positions(f"other{n}#topic") for n in range(1000)]
    assert sum(bloom.has(bitmap, positions) for positions in others) < 200
