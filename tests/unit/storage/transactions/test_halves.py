"""A transaction's records, as each version of RocketMQ writes and reads them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.layout import StoreFormat, SysFlag
from mqstore.storage.transactions import halves
from mqstore.storage.transactions.halves import Decision, Verdict
from mqstore.storage.transactions.records import LogRecord, NewRecord

HOST = "10.0.0.1:1234"
MESSAGE = NewRecord("orders", 3, b"body", {"UNIQ_KEY": "u1", "TAGS": "a"}, HOST, 1_000, flag=7)
DECISION = Decision(Verdict.COMMIT, 5_000, "producer")


def stored(record: NewRecord, queue_offset: int = 5) -> LogRecord:
    return LogRecord(record, queue_offset, 4_096, 2_000, 300)


def test_a_half_message_names_its_topic_queue_and_group() -> None:
    half = halves.half_of(MESSAGE, "g", StoreFormat.V4_9)
    assert (half.topic, half.queue_id, half.sys_flag) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0)
    assert half.properties == {
        "UNIQ_KEY": "u1",
        "TAGS": "a",
        "TRAN_MSG": "true",
        "PGROUP": "g",
        "REAL_TOPIC": "orders",
        "REAL_QID": "3",
    }


def test_in_5_x_a_half_message_has_its_transaction_id() -> None:
    half = halves.half_of(MESSAGE, "g", StoreFormat.V5_X)
    assert half.properties["__transactionId__"] == "u1"


def test_a_half_message_reads_back_as_it_was_written() -> None:
    half = halves.read_half(stored(halves.half_of(MESSAGE, "g", StoreFormat.V4_9)))
    assert half is not None
    assert (half.key, half.uniq_key, half.group) == ("u1", "u1", "g")
    assert (half.topic, half.queue_id, half.check_times, half.size) == ("orders", 3, 0, 1)


def test_a_half_message_without_a_real_queue_is_none() -> None:
    assert halves.read_half(stored(MESSAGE)) is None


def test_a_half_message_without_unique_key_goes_by_its_first_offset() -> None:
    record = halves.half_of(MESSAGE, "g", StoreFormat.V4_9)
    table = {name: value for name, value in record.properties.items() if name != "UNIQ_KEY"}
    first = halves.read_half(stored(NewRecord(record.topic, 0, b"", table, HOST, 0), 9))
    assert first is not None
    copy = halves.checked_copy_of(stored(NewRecord(record.topic, 0, b"", table, HOST, 0)), first, 1)
    again = halves.read_half(stored(copy, 12))
    assert again is not None
    assert first.key == again.key == "@9"


def test_a_committed_message_points_at_the_newest_half() -> None:
    half = stored(halves.half_of(MESSAGE, "g", StoreFormat.V4_9))
    place = halves.read_half(half)
    assert place is not None
    real = halves.committed_of(half, place, StoreFormat.V4_9)
    assert (real.topic, real.queue_id, real.body, real.flag) == ("orders", 3, b"body", 7)
    assert (real.sys_flag, real.prepared_transaction_offset) == (SysFlag.TRANSACTION_COMMIT, 4_096)
    assert real.properties["REAL_TOPIC"] == "orders"
    in_5_x = halves.committed_of(half, place, StoreFormat.V5_X)
    assert not in_5_x.properties.keys() & {"REAL_TOPIC", "REAL_QID"}


def test_a_checked_half_counts_and_stays_the_same_otherwise() -> None:
    half = stored(halves.half_of(MESSAGE, "g", StoreFormat.V4_9))
    place = halves.read_half(half)
    assert place is not None
    copy = halves.checked_copy_of(half, place, 2)
    assert copy.properties == {**half.record.properties, "TRANSACTION_CHECK_TIMES": "2"}
    assert (copy.body, copy.flag, copy.born_timestamp_ms) == (b"body", 7, 1_000)


def test_4_9_writes_an_op_record_for_each_half_and_5_x_one_for_all() -> None:
    old = halves.ops_of([3, 12], "u1", DECISION, HOST, "k", StoreFormat.V4_9)
    new = halves.ops_of([3, 12], "u1", DECISION, HOST, "k", StoreFormat.V5_X)
    assert [each.body for each in old] == [b"3", b"12"]
    assert [each.body for each in new] == [b"3,12,"]
    assert all(each.properties["TAGS"] == "d" for each in old + new)


def test_an_op_record_has_the_decision_its_time_and_reason() -> None:
    (op,) = halves.ops_of([3], "u1", DECISION, HOST, "k", StoreFormat.V4_9)
    assert halves.read_decision(stored(op)) == DECISION
    assert op.properties["KEYS"] == "u1"


def test_a_brokers_op_record_has_only_the_offsets_of_halves() -> None:
    op = NewRecord("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, b"0,4,6,", {"TAGS": "d"}, HOST, 0)
    assert halves.read_op(stored(op)) == [0, 4, 6]
    assert halves.read_decision(stored(op)) is None


def test_a_record_without_the_op_tag_resolves_nothing() -> None:
    assert halves.read_op(stored(NewRecord("op", 0, b"3", {"TAGS": "x"}, HOST, 0))) == []


@given(body=st.binary(max_size=60))
def test_an_op_record_of_any_bytes_is_read_without_failing(body: bytes) -> None:
    assert all(offset >= 0 for offset in halves.offsets_in(body))


@given(
    table=st.dictionaries(
        st.sampled_from(
            [
                *halves.half_of(MESSAGE, "g", StoreFormat.V5_X).properties,
                "TRANSACTION_CHECK_TIMES",
                "CHECK_IMMUNITY_TIME_IN_SECONDS",
            ]
        ),
        st.text(max_size=30),
    )
)
def test_a_half_message_of_any_properties_is_read_without_failing(table: dict[str, str]) -> None:
    found = halves.read_half(stored(NewRecord("h", 0, b"", table, HOST, 0)))
    assert found is None or 0 <= found.queue_id <= halves.QUEUE_ID_MAX
