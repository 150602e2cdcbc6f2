"""Shared and ordered consumer groups over REST: receive, acknowledge, return, extend; members.

::

    routes         the endpoints, over one shard or several
    member_routes  those of members of ordered groups
    waiting        the engine of an open store, with its receives
    receiving      one receive, until it has messages or its time is over
    lines          receives of one group that wait for a message
    over_shards    receipts divided by shard, and messages of other shards
"""
