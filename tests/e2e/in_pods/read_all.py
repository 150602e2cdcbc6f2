"""Runs in a pod: produces COUNT messages of a mebibyte and reads each of them through query, which
then has every segment mapped. Lines of JSON: ``read`` with how many were found.
"""

from __future__ import annotations

import json
import os

from mqstore.client import Client, NewMessage

BODY = b"x" * (1 << 20)

urls = (os.environ["WRITER_URL"], os.environ["QUERY_URL"])
with Client(*urls, token=os.environ["TOKEN"], timeout_s=30.0) as client:
    client.create_topic("mapped", queues=1)
    for _ in range(int(os.environ["COUNT"])):
        client.produce("mapped", [NewMessage(body=BODY)], durability="sync")
    offset = found = 0
    while page := client.pull("mapped", 0, offset, max_messages=8).messages:
        found += len(page)
        offset = page[-1].queue_offset + 1
    print(json.dumps({"read": found}))
