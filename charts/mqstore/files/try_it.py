"""The script of `helm test`: produces, finds, and commits a transaction, through the Services."""

import os
import uuid

from mqstore.client import Client, NewMessage

TOPIC = "mqstore-test"
key = uuid.uuid4().hex
with Client(
    os.environ["WRITER_URL"],
    os.environ["QUERY_URL"],
    coordinator_url=os.environ.get("COORDINATOR_URL", ""),
    token=os.environ["TOKEN"],
) as client:
    client.create_topic(TOPIC)
    sent = client.produce(TOPIC, [NewMessage(body="tried", keys=(key,))], durability="sync")
    print("produced", sent.messages[0].offset_msg_id)
    found = client.messages_by_key(TOPIC, key).messages
    assert [each.body for each in found] == ["tried"], found
    print("found by its key")
    if "COORDINATOR_URL" in os.environ:
        begun = client.begin("mqstore-test", TOPIC, [NewMessage(body="decided", keys=(key,))])
        assert len(client.messages_by_key(TOPIC, key).messages) == 1
        client.commit_transaction(begun.transaction_id)
        found = client.messages_by_key(TOPIC, key).messages
        assert [each.body for each in found] == ["decided", "tried"], found  # newest first
        print("seen once its transaction", begun.transaction_id, "was committed")
