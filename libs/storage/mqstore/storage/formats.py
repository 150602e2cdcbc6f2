"""The formats of a store: constants of the layout, and codecs of records, properties, hosts,
message ids and cursors. Reads and writes no files.

Used by services, by ``mqstore store dump`` and by Spark jobs; light enough for a Spark worker.
"""

from mqstore.storage._kernel import (
    Defect,
    RecordColumns,
    check_record,
    count_json_values,
    crc32c,
    has_distinct_members,
)
from mqstore.storage.codec.cursors import decode as decode_cursor
from mqstore.storage.codec.cursors import decode_name as decode_name_cursor
from mqstore.storage.codec.cursors import encode as encode_cursor
from mqstore.storage.codec.cursors import encode_name as encode_name_cursor
from mqstore.storage.codec.ext_unit import ExtUnit
from mqstore.storage.codec.hosts import Host, parse_host
from mqstore.storage.codec.java_text import string_hash
from mqstore.storage.codec.message_id import decode as decode_message_id
from mqstore.storage.codec.properties import decode as decode_properties
from mqstore.storage.codec.properties import encode as encode_properties
from mqstore.storage.codec.properties import index_keys
from mqstore.storage.codec.record import Blank, Record, body_crc, defect_error
from mqstore.storage.layout import (
    BLANK_RECORD_SIZE,
    HALF_TOPIC,
    INDEX_HEADER_SIZE,
    INDEX_ITEM_SIZE,
    INDEX_SLOT_SIZE,
    KEY_SEPARATOR,
    NAME_VALUE_SEPARATOR,
    OP_TOPIC,
    PROPERTY_CHECK_IMMUNITY,
    PROPERTY_DELAY,
    PROPERTY_DELIVER_AT,
    PROPERTY_KEYS,
    PROPERTY_SEPARATOR,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    QUEUE_ENTRY_SIZE,
    QUEUED_TYPES,
    SCHEDULE_TOPIC,
    TRANSACTION_MASK,
    StoreFormat,
    SysFlag,
)
from mqstore.storage.paths import segment_name

__all__ = [
    "BLANK_RECORD_SIZE",
    "HALF_TOPIC",
    "INDEX_HEADER_SIZE",
    "INDEX_ITEM_SIZE",
    "INDEX_SLOT_SIZE",
    "KEY_SEPARATOR",
    "NAME_VALUE_SEPARATOR",
    "OP_TOPIC",
    "PROPERTY_CHECK_IMMUNITY",
    "PROPERTY_DELAY",
    "PROPERTY_DELIVER_AT",
    "PROPERTY_KEYS",
    "PROPERTY_SEPARATOR",
    "PROPERTY_SHARDING_KEY",
    "PROPERTY_TAGS",
    "PROPERTY_UNIQ_KEY",
    "QUEUED_TYPES",
    "QUEUE_ENTRY_SIZE",
    "SCHEDULE_TOPIC",
    "TRANSACTION_MASK",
    "Blank",
    "Defect",
    "ExtUnit",
    "Host",
    "Record",
    "RecordColumns",
    "StoreFormat",
    "SysFlag",
    "body_crc",
    "check_record",
    "count_json_values",
    "crc32c",
    "decode_cursor",
    "decode_message_id",
    "decode_name_cursor",
    "decode_properties",
    "defect_error",
    "encode_cursor",
    "encode_name_cursor",
    "encode_properties",
    "has_distinct_members",
    "index_keys",
    "parse_host",
    "segment_name",
    "string_hash",
]
