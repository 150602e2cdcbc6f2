"""The fast path of HTTP: a plain request of a hot route is recognised (``plain``), its handler
takes the body's bytes and returns the reply's (``prepared``), and one write sends them
(``connection``). All other bytes go to uvicorn, within the same bounds (``bounds``)."""
