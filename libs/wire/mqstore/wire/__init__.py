"""The contract of the REST API: one module per subject, with its requests and replies as
pydantic models, and its operations.

Services attach a handler to each operation; the client builds its requests from them, and
validates replies with the models. Services check requests with the models, document them, and
derive from them the msgspec structs of hot routes (``mqstore.service.structs``).
"""
