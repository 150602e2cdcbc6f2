"""What retention will delete, and what is lost with it.

``facts`` is what a shard says of itself, by its path (``facts_at_path``) or its services
(``facts_at_url``); ``counting`` is what Spark counts in its log; ``losses`` and ``forecast``
conclude, and know no Spark; ``making`` puts the ``report`` together, a value; ``tables`` and
``page`` (with ``words``) are its shapes.
"""
