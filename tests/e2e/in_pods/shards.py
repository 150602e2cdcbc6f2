"""Runs in a pod: two shards behind one address, all of them and then while one is away.

Lines of JSON: ``tried`` is what each shard made of it, ``whole`` what is found over both, and
``partial`` once an answer says that a shard is missing, what it says then.
"""

from __future__ import annotations

import json
import os
import time

from mqstore.client import Client, ClientError, Messages, NewMessage

NAME, TOKEN = os.environ["NAME"], os.environ["TOKEN"]
COORDINATOR = os.environ["COORDINATOR_URL"]
PATIENCE_S = 120


def tried(client: Client, shard: int) -> dict[str, object]:
    """The result of one shard; any pod may reply for it."""
    message = NewMessage(body=str(shard), keys=("both",))
    sent = client.produce("t", [message], durability="sync", shard=shard).messages[0]
    begun = client.begin("g", "t", [NewMessage(body="2", keys=(f"k{shard}",))], shard=shard)
    client.commit_transaction(begun.transaction_id)
    [found] = client.messages_by_key("t", f"k{shard}").messages
    pulled = client.pull("t", sent.queue_id, shard=shard).messages
    by_id = client.message(sent.offset_msg_id)
    return {
        "shard": sent.shard,
        "id": sent.offset_msg_id[:8],
        "decided": found.shard,
        "pulled": {each.shard for each in pulled} == {shard},
        "byId": by_id.shard,
    }


def summarize(found: Messages) -> dict[str, object]:
    """Bodies and completeness of a reply over all shards."""
    return {
        "bodies": sorted(each.body or "" for each in found.messages),
        "complete": found.complete,
        "missing": None if found.shards is None else found.shards.missing,
    }


def partial(client: Client) -> Messages:
    """The first answer that names a shard as missing."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            found = client.messages_by_key("t", "both")
        except ClientError:  # the requested shard stops now
            continue
        if found.shards is not None and found.shards.missing:
            return found
        time.sleep(0.2)
    raise SystemExit("no shard was ever missing")


def main() -> None:
    urls = (os.environ["WRITER_URL"], os.environ["QUERY_URL"])
    with Client(*urls, coordinator_url=COORDINATOR, token=TOKEN, timeout_s=30.0) as client:
        made = client.create_topic("t", queues=1)
        print(json.dumps({"made": made.model_dump(mode="json", by_alias=True)["shards"]}))
        print(json.dumps({"tried": [tried(client, shard) for shard in (0, 1)]}))
        print(json.dumps({"whole": summarize(client.messages_by_key("t", "both")), "ready": 1}))
        print(json.dumps({"partial": summarize(partial(client))}))


main()
