"""A message of the contract in plain Python: the specification of the kernel's JSON."""

from __future__ import annotations

import json
from typing import Any

from mqstore.service.message_bodies import BodyForm
from mqstore.service.message_views import flag_names, host_text
from mqstore.storage.codec.record import Record


def message(record: Record, shard: int, form: BodyForm) -> dict[str, Any]:
    """Return the fields of a record's message, in their order."""
    return {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "size": record.size,
        "offsetMsgId": record.offset_message_id,
        "uniqKey": record.uniq_key,
        "tags": record.tags,
        "keys": [key for key in (record.keys or "").split(" ") if key],
        "properties": record.properties or {},
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "sysFlagNames": list(flag_names(record.sys_flag)),
        "bornTimestamp": record.born_timestamp_ms,
        "bornHost": host_text(record.born_host),
        "storeTimestamp": record.store_timestamp_ms,
        "storeHost": host_text(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "shard": shard,
        "bodySize": len(record.body),
        **json.loads(form.encode(record)),
    }
