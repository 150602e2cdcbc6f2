"""Types of problems of consumer groups; ``problems`` has all types."""

from __future__ import annotations

from mqstore.wire.problem_type import register

GROUP_UNKNOWN = register(
    "group-unknown",
    404,
    "No such group",
    "The group was never created and has committed no offset.",
    "Check the name; `GET /v1/groups` lists the groups.",
)
GROUP_DISABLED = register(
    "group-disabled",
    409,
    "The group may not consume",
    "The group's `consumeEnable` is false, or a broker's administrator forbade it the topic.",
    "Set `consumeEnable` to true: `PUT /v1/groups/GROUP`.",
)
GROUP_ORDERED = register(
    "group-ordered",
    409,
    "The group is ordered",
    "The group has members, and the receive names none.",
    "Join, and receive with `member`; or stop the members, to use the group as a shared one.",
)
GROUP_SHARED = register(
    "group-shared",
    409,
    "The group is shared",
    "Messages of the group are leased to consumers that are no members.",
    "Stop these consumers; join when their messages are acknowledged or their leases expired.",
)
MEMBER_UNKNOWN = register(
    "member-unknown",
    409,
    "The consumer is no member",
    "It did not join the ordered group, or its session ended.",
    "Join again: `PUT /v1/groups/GROUP/members/MEMBER`.",
)
MEMBERS_FULL = register(
    "members-full",
    409,
    "The ordered group is full",
    "It has as many members or queues as it may have, or the store as many ordered groups.",
    "Run fewer members, or name fewer topics.",
)
LIMIT_REACHED = register(
    "limit-reached",
    409,
    "A limit of the store is reached",
    "The store has as many topics, queues or groups as a setting allows: `setting`, `limit`.",
    "Delete what is not used, or raise the setting.",
)
EPOCH_STALE = register(
    "epoch-stale",
    409,
    "The queue is held under another epoch",
    "The queue of an ordered group went to another member, or no epoch is given for it.",
    "Stop consuming the queue; `PUT /v1/groups/GROUP/members/MEMBER` returns queues and epochs.",
)
DEAD_LETTERS_FULL = register(
    "dead-letters-full",
    409,
    "Too many dead letters were settled one by one",
    "The store remembers a bounded number of ranges of dead letters that were resent or purged.",
    "Purge the oldest dead letters of a group: `:purge` with `before` or `all`.",
)
RECEIPT_INVALID = register(
    "receipt-invalid",
    422,
    "No receipt of a message",
    "A receipt is not one that `:receive` returned, or names a shard that is unknown.",
    "Send each receipt as it was received.",
)
OFFSET_REFUSED = register(
    "offset-refused",
    409,
    "The offset cannot be committed",
    "The offset is beyond the end of the queue, or before the committed one.",
    "Commit within the bounds in `detail`; to go back use `allowBack` or a reset.",
)
GROUP_INVALID = register(
    "group-invalid",
    422,
    "The group's name is not allowed",
    "The name is too long, has a character that is not allowed, or is RocketMQ's own.",
    "Choose another name, of `%`, `|`, letters, digits, `_` and `-`.",
)
