"""Files of ``config/`` that were edited by hand, as a broker reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage.errors import ConfigTableError
from mqstore.storage.layout import StoreFormat
from mqstore.storage.paths import StorePaths
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables import table_text
from mqstore.storage.tables.config_tables import ConsumerOffsets, TopicTable
from mqstore.storage.tables.table import Source

OFFSETS = '{"offsetTable":{"T@g":{0:7}}}'
RELAXED = [
    '{"offsetTable":{"T@g":{0:7,}}}',
    '{"offsetTable":{"T@g":{0:7}},}',
    "{'offsetTable':{'T@g':{'0':7}}}",
    '{offsetTable:{"T@g":{0:7}}}',
    "\ufeff" + OFFSETS,
    "/* a * b */" + OFFSETS + " // end",
    '{"offsetTable":{"T@g":{0:7L}}}',
    '{"offsetTable":{"T@g":{+0:+07}}}',
    '{"offsetTable":{"\\x54@g":{0:7}}}',
    '{"offsetTable":{"T@g":{0:"7"}}}',
    '{"offsetTable":{"T@g":{0:7.0}}}',
    '{"offsetTable":{"T@g":{0:7.9}}}',
]
REFUSED = [
    ('{"offsetTable":{"T@g":{0:null}}}', "offsetTable 'T@g' 0 is None, no integer of 64 bits"),
    ('{"offsetTable":{"T@g":{0:true}}}', "is True, no integer"),
    ('{"offsetTable":{"T@g":{0:9223372036854775808}}}', "no integer of 64 bits"),
    ('{"offsetTable":{"T@g":{0:NaN}}}', "NaN"),
    ('{"offsetTable":{"T@g":{0:"x"}}}', "is 'x', no integer"),
    ('{"offsetTable":{"T@g":null}}', "offsetTable 'T@g' is None, no integer"),
    ('{"offsetTable":[]}', "offsetTable is no object"),
    ('{"offsetTable":{"T@g":{0:0x10}}}', "delimiter"),
    ('{"offsetTable":{"T@g":{0:7}}', "delimiter"),
    ('{"offsetTable":{"T@g":{0:7}}}x', "Extra data"),
    ('{"offsetTable":{"T@g":{0:7,,1:8}}}', "property name"),
    ('"unterminated', "Unterminated string"),
    ("'\\q'", "Expecting value"),
]


@pytest.mark.parametrize("text", [OFFSETS, *RELAXED])
def test_what_a_broker_reads_is_read(text: str) -> None:
    (queues,) = table_text.parse("consumerOffset.json", text)["offsetTable"].values()
    assert {int(queue): offset for queue, offset in queues.items()} == {0: 7}


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_what_a_broker_does_not_read_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        table_text.parse("consumerOffset.json.bak", text)


def test_fields_of_topics_have_the_types_that_a_broker_has() -> None:
    text = '{"topicConfigTable":{"T":{"Perm":"6","readQueueNums":8.0,"order":"TRUE","other":"1"}}}'
    entry = table_text.parse("topics.json", text)["topicConfigTable"]["T"]
    assert entry == {"perm": 6, "readQueueNums": 8, "order": True, "other": "1"}
    for value in ('"six"', "null", "4294967296", "[]"):
        with pytest.raises(ValueError, match=r"'T' perm is .* no integer of 32"):
            table_text.parse("topics.json", text.replace('"6"', value))
    with pytest.raises(ValueError, match="order is 'yes', neither true nor false"):
        table_text.parse("topics.json", text.replace("TRUE", "yes"))


def test_fields_of_groups_have_the_types_that_a_broker_has() -> None:
    text = (
        '{"subscriptionGroupTable":{"g":{"consumeEnable":0,"retryMaxTimes":"3","brokerId":1e12}}}'
    )
    entry = table_text.parse("subscriptionGroup.json", text)["subscriptionGroupTable"]["g"]
    assert entry == {"consumeEnable": False, "retryMaxTimes": 3, "brokerId": 10**12}


def test_a_file_with_a_value_that_no_broker_reads_is_replaced_by_its_backup(tmp_path: Path) -> None:
    paths, seams = StorePaths(tmp_path), production_seams()
    seams.files.make_directories(paths.config)
    for name, text in (
        ("consumerOffset.json", OFFSETS.replace("7", "null")),
        ("consumerOffset.json.bak", OFFSETS),
        ("topics.json", '{"topicConfigTable":{"T":7}}'),
    ):
        (paths.config / name).write_text(text)
    offsets = ConsumerOffsets.load(paths, StoreFormat.V4_9, seams)
    assert (offsets.source, offsets.get("g", "T", 0)) == (Source.BACKUP, 7)
    assert "'T@g' 0 is None" in str(offsets.problem)
    with pytest.raises(ConfigTableError, match="topicConfigTable 'T' is no object"):
        TopicTable.load(paths, StoreFormat.V4_9, seams)
