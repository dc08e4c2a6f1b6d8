"""The base of every struct on the wire.

Structs are frozen, so that a store can share an object with all its readers. They have no cycles, so the garbage
collector need not track the hundred thousand objects of a watch. Unknown fields are skipped, so a newer API server
never breaks an older scheduler.
"""

from msgspec import Struct


class ApiStruct(Struct, frozen=True, omit_defaults=True, rename="camel", gc=False):
    """A part of an API object: camelCase on the wire, snake_case here."""
