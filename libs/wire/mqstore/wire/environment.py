"""Default addresses of the services, and environment variables that name others and credentials.

Imports nothing: the command line reads the names before it needs a client.
"""

from __future__ import annotations

from typing import Final

WRITER_URL: Final = "http://127.0.0.1:8081"
QUERY_URL: Final = "http://127.0.0.1:8082"
COORDINATOR_URL: Final = "http://127.0.0.1:8083"

WRITER_URL_VARIABLE: Final = "MQSTORE_WRITER_URL"
QUERY_URL_VARIABLE: Final = "MQSTORE_QUERY_URL"
COORDINATOR_URL_VARIABLE: Final = "MQSTORE_COORDINATOR_URL"
TOKEN_VARIABLE: Final = "MQSTORE_TOKEN"  # noqa: S105 (a name)
TOKEN_FILE_VARIABLE: Final = "MQSTORE_TOKEN_FILE"  # noqa: S105 (a name)
CA_VARIABLE: Final = "MQSTORE_CA"
CONTEXT_VARIABLE: Final = "MQSTORE_CONTEXT"
"""Name of a context of the command line."""
OUTPUT_VARIABLE: Final = "MQSTORE_OUTPUT"
"""Form of the output of commands: table, json, yaml or csv."""

VARIABLES: Final = frozenset(
    {
        *(WRITER_URL_VARIABLE, QUERY_URL_VARIABLE, COORDINATOR_URL_VARIABLE),
        *(TOKEN_VARIABLE, TOKEN_FILE_VARIABLE, CA_VARIABLE, CONTEXT_VARIABLE, OUTPUT_VARIABLE),
    }
)
"""All of them."""
