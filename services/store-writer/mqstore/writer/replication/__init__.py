"""Replication over RocketMQ's HA protocol.

A store that leads: ``leader`` opens the ports, ``ha_server`` sends the log to slaves, ``slave`` is
one connection, and ``table_requests`` serves the requests by which slaves copy topics, groups and
offsets. A store that follows: ``following``.
"""
