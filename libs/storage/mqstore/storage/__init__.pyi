"""The classes of the face, for type checkers."""

from mqstore.storage.config import StoreConfig as StoreConfig
from mqstore.storage.message_store import MessageStore as MessageStore
from mqstore.storage.options import Durability as Durability
from mqstore.storage.options import StoreOptions as StoreOptions
from mqstore.storage.store_reader import StoreReader as StoreReader

__all__: list[str]
