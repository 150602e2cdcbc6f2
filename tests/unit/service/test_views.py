from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from mqstore.query import views
from mqstore.service import message_views
from mqstore.service.message_bodies import BodyForm
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Record
from mqstore.storage.lookup.record_place import Cover, RecordPlace
from mqstore.storage.queues.queue_entry import QueueEntry
from mqstore.storage.reads import messages_json
from mqstore.wire.examples import lookups as examples
from mqstore.wire.messages import BodyShape
from tests.unit.service.stored import stored


def _shown(found: Record) -> dict[str, Any]:
    form = message_views.message_form(0, BodyForm())
    shown: dict[str, Any] = json.loads(messages_json(form, [found]))
    return shown


def test_message_has_the_fields_of_the_documented_example() -> None:
    shown = _shown(stored())
    assert set(shown) == set(examples.MESSAGE)


def test_message_with_its_place_has_the_fields_of_the_documented_example() -> None:
    place = RecordPlace(0, 0, QueueEntry(0, 196, 0), None, 196, Cover.WHOLE)
    shown = json.loads(views.message_detail(stored(), 0, BodyForm(), place))
    assert set(shown) == set(examples.MESSAGE_DETAIL)
    assert set(shown["checksum"]) == set(examples.MESSAGE_DETAIL["checksum"])
    assert set(shown["queueEntry"]) == set(examples.MESSAGE_DETAIL["queueEntry"])


def test_properties_tags_and_keys_are_shown() -> None:
    raw = b"KEYS\x01a b\x02TAGS\x01t\x02UNIQ_KEY\x01u\x02x\x01y"
    shown = _shown(stored(raw=raw))
    assert (shown["keys"], shown["tags"], shown["uniqKey"]) == (["a", "b"], "t", "u")
    assert shown["properties"]["x"] == "y"


@pytest.mark.parametrize(
    ("sys_flag", "names"),
    [
        (0, ()),
        (0x1, ("COMPRESSED",)),
        (0x4, ("TRANSACTION_PREPARED",)),
        (0x8, ("TRANSACTION_COMMIT",)),
        (0xC, ("TRANSACTION_ROLLBACK",)),
        (0x331, ("COMPRESSED", "BORN_HOST_V6", "STORE_HOST_V6", "COMPRESSION_ZLIB")),
    ],
)
def test_sys_flag_has_names(sys_flag: int, names: tuple[str, ...]) -> None:
    assert message_views.flag_names(sys_flag) == names


def test_ipv6_hosts_stand_in_brackets() -> None:
    assert message_views.host_text(Host(b"\0" * 15 + b"\1", 5)) == "[0:0:0:0:0:0:0:1]:5"


def _nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def _is_read(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except RecursionError:
        return False
    return True


def test_json_that_is_nested_too_deep_for_who_reads_the_answer_is_not_shown_as_such() -> None:
    form = BodyForm(BodyShape.JSON)
    deepest = next(depth for depth in range(200_000, 0, -50) if _is_read(_nested(depth)))
    for depth, is_shown in ((150, True), (deepest - 50, False)):
        encoded = form.encode(stored(body=_nested(depth)))
        assert (b'"bodyJson":' in encoded) == is_shown
        assert (b'"body":"%b"' % _nested(depth) in encoded) == (not is_shown)
    assert b"it is no JSON" in encoded
