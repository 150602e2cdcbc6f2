"""One shard as a whole: replicas, the network between them, and the lease, all from one seed.

``docs/testing.md`` ("Schedules of a shard") says what is checked, and how to run it.
"""
