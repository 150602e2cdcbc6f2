"""The expiry report: what retention will delete, and which unread messages are lost with it.

``facts`` are the state of a shard, from its path (``facts_at_path``) or its services
(``facts_at_url``). ``counting`` counts the messages of its log with Spark. ``losses`` and
``forecast`` evaluate the counts without Spark. ``making`` makes the ``report``, a value, which
``tables`` and ``page`` (with ``words``) render.
"""
