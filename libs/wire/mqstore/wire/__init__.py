"""The contract of the REST API: requests and replies as pydantic models, one module per subject.

The client validates replies with these models. Services check requests with them, document them,
and derive from them the msgspec structs of hot routes (``mqstore.service.structs``).
"""
