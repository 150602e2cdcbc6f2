"""Runs in a pod: produces to, finds on and transacts with each shard by its own address."""

from __future__ import annotations

import json
import os

from mqstore.client import Client, NewMessage

NAME, TOKEN = os.environ["NAME"], os.environ["TOKEN"]


def tried(shard: int) -> dict[str, object]:
    """What one shard made of it."""
    urls = (f"http://{NAME}-shard-{shard}:8081", f"http://{NAME}-shard-{shard}:8082")
    coordinator = os.environ["COORDINATOR_URL"]
    with Client(*urls, coordinator_url=coordinator, token=TOKEN, timeout_s=30.0) as client:
        client.create_topic("t")
        sent = client.produce("t", [NewMessage(body="1")], durability="sync").messages[0]
        begun = client.begin("g", "t", [NewMessage(body="2", keys=("k",))], shard=shard)
        client.commit_transaction(begun.transaction_id)
        [found] = client.messages_by_key("t", "k").messages
        return {"shard": sent.shard, "id": sent.offset_msg_id[:8], "decided": found.shard}


print(json.dumps({"tried": [tried(shard) for shard in (0, 1)]}))
