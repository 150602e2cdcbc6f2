"""Shared consumer groups over REST: receive, acknowledge, return and extend.

::

    routes        the endpoints, over one shard or several
    waiting       the engine of an open store, and receives that wait for a message
    over_shards   receipts divided by shard, and messages of other shards
"""
