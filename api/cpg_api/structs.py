"""The base of every struct that crosses the wire.

Frozen, so that a store can share an object with everybody who asks; without cycles, so that the garbage
collector need not track what a watch delivers by the hundred thousand. Unknown fields are skipped: a newer
API server never breaks an older scheduler.
"""

from msgspec import Struct


class ApiStruct(Struct, frozen=True, omit_defaults=True, rename="camel", gc=False):
    """A piece of an API object: camelCase on the wire, snake_case here."""
