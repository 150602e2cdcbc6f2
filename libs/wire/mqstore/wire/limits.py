"""Limits of requests. tests/unit/writer/test_limits_of_the_contract.py compares them with those of
the engine."""

from __future__ import annotations

from typing import Final

QUEUES_MAX: Final = 1024
"""Queues of a topic."""
COMMITS_MAX: Final = 500
"""Offsets of one request."""
EXPRESSION_LENGTH_MAX: Final = 4_096
"""Characters of an SQL92 expression."""
PIN_LEASE_MAX_S: Final = 86_400
REBUILD_LEASE_MAX_S: Final = 3_600
ORDERING_KEY_LENGTH_MAX: Final = 255
"""Characters of an ordering key."""
COUNT_MAX: Final = 1_000
"""Messages of one reply, and ids of one request."""
BODY_MAX: Final = 1 << 30
"""Bytes of a body that a reply shows."""
PULL_COUNT_DEFAULT: Final = 32
PULL_WAIT_MAX_S: Final = 30
POLL_S: Final = 5.0
"""Seconds for which the programs of mqstore let one request wait for messages or checks: less than
the lease of a leader, so that none waits longer for one that has stopped than the next one takes to
lead."""
LEASE_DEFAULT_S: Final = 60
"""Seconds for which a received message is leased."""
LEASE_MAX_S: Final = 43_200
MEMBER_LENGTH_MAX: Final = 128
"""Characters of the name of a member of an ordered group."""
SESSION_MIN_S: Final = 1
"""Seconds: a member renews its session in the background, also while it is busy."""
SESSION_DEFAULT_S: Final = 30
SESSION_MAX_S: Final = 3_600
DELAY_MAX_S: Final = 7_200
"""Seconds for which a returned message may hold its ordered queue; as the longest delay level."""
TOPICS_MAX: Final = 64
"""Topics that one receive, or one request for offsets, names."""
RECEIPT_LENGTH_MAX: Final = 512
"""Characters; the longest topic has 255."""
REASON_LENGTH_MAX: Final = 500
"""Characters of the reason of a return, which is stored as a property."""
DELAY_S_MAX: Final = 40 * 86_400
"""Seconds until the delivery of a new message."""
DELAY_LEVEL_MAX: Final = 18
"""Levels of messageDelayLevel that a return may name."""
DEAD_LETTERS_DEFAULT: Final = 100
"""Dead letters that one resend takes of each shard."""
