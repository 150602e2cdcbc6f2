"""Transactions of this shard over HTTP: the storage library's engine behind routes.

::

    shard_transactions   the engine of an open store, and who waits for it
    hot_routes           begin, commit, roll back
    routes               resolve by hand, list, show one
    check_routes         for coordinators: due checks, reports, callbacks of producers
    requests             from a request to a transaction to begin
    turns                all begins and decisions of one turn of the event loop are one append
    checks, producers    leases of due checks; producers that can be called
    views, metrics       transactions as the API and Prometheus show them
"""
