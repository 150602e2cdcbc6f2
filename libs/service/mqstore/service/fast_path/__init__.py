"""The fast path of HTTP, for plain requests of hot routes.

``plain`` parses the head of a plain request, ``prepared`` computes the bytes of the reply, and
``connection`` sends them in one write. uvicorn handles all other requests. ``bounds`` has the
limits of both.
"""
