"""The place of a shard as a job's argument names it: its log, and optionally its writer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from mqstore.client import Client
from mqstore.jobs.errors import WrongUsage
from mqstore.jobs.log.at_url import LogAtUrl

_SCHEMES = ("http://", "https://")


@dataclass(frozen=True, slots=True)
class ShardPlace:
    """The addresses of one shard, with token file and CA bundle (PEM)."""

    where: str
    """A store directory, or the address of its query service."""
    writer_url: str | None
    """Address of its store-writer; None only for a directory."""
    token_file: str | None
    ca: str | None

    @property
    def is_url(self) -> bool:
        """Whether the log is read from a query service."""
        return self.where.startswith(_SCHEMES)

    @classmethod
    def of(cls, text: str, token_file: str | None = None, ca: str | None = None) -> Self:
        """Parse DIRECTORY, DIRECTORY,WRITER_ADDRESS or QUERY_ADDRESS,WRITER_ADDRESS.

        Raises WrongUsage.
        """
        where, comma, writer = text.partition(",")
        place = cls(where.rstrip("/") or where, writer.rstrip("/") or None, token_file, ca)
        if comma and not writer.startswith(_SCHEMES):
            raise WrongUsage(f"{text!r}: behind the comma stands the address of a store-writer")
        if place.is_url and place.writer_url is None:
            raise WrongUsage(
                f"{text}: name its store-writer too: http://QUERY:8082,http://WRITER:8081"
            )
        return place

    def client(self) -> Client:
        """A client of the writer, and of query if named. Raises AccessRefused, WrongUsage."""
        if self.writer_url is None:
            raise WrongUsage(f"{self.where}: no store-writer was named")
        query = self.where if self.is_url else self.writer_url
        return LogAtUrl(query, self.token_file, self.ca).client(self.writer_url)
