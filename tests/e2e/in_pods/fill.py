"""Runs in a pod: produces large messages until there is no room, and looks on until there is again.

Lines of JSON: ``full`` once puts are answered 507, ``read`` of what was found meanwhile, and
``again`` when a put was taken.
"""

from __future__ import annotations

import json
import os
import time

from mqstore.client import Client, NewMessage, ProblemError

TOPIC = "fills"
BODY = b"x" * (1 << 20)


def puts_until_full(client: Client) -> list[str]:
    """Ids of what was taken."""
    taken: list[str] = []
    while True:
        try:
            sent = client.produce(TOPIC, [NewMessage(body=BODY)], durability="sync")
        except ProblemError as error:
            if error.status != 507:
                raise
            return taken
        taken.append(sent.messages[0].offset_msg_id)


def main() -> None:
    urls = (os.environ["WRITER_URL"], os.environ["QUERY_URL"])
    with Client(*urls, token=os.environ["TOKEN"], timeout_s=30.0) as client:
        client.create_topic(TOPIC)
        taken = puts_until_full(client)
        print(json.dumps({"full": len(taken)}))
        found = sum(client.message(each).body == BODY.decode() for each in taken)
        print(json.dumps({"read": found}))
        while not puts_until_full(client):
            time.sleep(0.5)
        print(json.dumps({"again": 1}))


main()
