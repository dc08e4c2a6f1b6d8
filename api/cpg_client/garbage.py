"""Python's cyclic garbage collector, in a process with a large cache.

A full collection visits every object of the cache and finds nothing: objects of the API refer to no cycles. With 10,000
pods it stops the event loop for 0.05 to 0.2 s. So what is there after the start is excluded from collections, and they
begin less often. Memory of objects without cycles is freed at once, as always.
"""

import gc

MAX_YOUNG_OBJECTS = 10_000
"""New objects after which a collection begins; Python's default is 700, less than a list of ten pods has."""


def tune() -> None:
    """Exclude what the imports have made from collections, and begin them less often."""
    gc.freeze()
    gc.set_threshold(MAX_YOUNG_OBJECTS, *gc.get_threshold()[1:])


def exclude_cache() -> None:
    """Exclude all objects that exist now from collections: the cache, once it has been filled."""
    gc.freeze()
