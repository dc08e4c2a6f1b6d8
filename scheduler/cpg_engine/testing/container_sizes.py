"""The sizes of all containers that an object holds, by the attributes that lead to them: finds what grows for ever."""

from collections import Counter, deque
from collections.abc import Collection, Iterator
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from msgspec import Struct

OWN = ("cpg_", "prometheus_client")
"""The packages whose objects are searched; metrics keep a child for each set of label values."""
MAPPINGS = (dict, WeakValueDictionary)
SEQUENCES = (list, tuple, set, frozenset, deque)


def container_sizes(root: object, without: Collection[object] = ()) -> Counter[str]:
    """Return the number of elements of the containers at each path; elements of a container share one path."""
    sizes, seen = Counter[str](), {id(found) for found in without}
    waiting: list[tuple[str, Any]] = [("", root)]
    while waiting:
        path, found = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, (*MAPPINGS, *SEQUENCES)):
            sizes[path] += len(found)
        elif isinstance(found, np.ndarray):
            sizes[path] += found.size
        waiting.extend((path + step, part) for step, part in _parts(found))
    return sizes


def _parts(found: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - any object at all
    """Yield what an object refers to."""
    if isinstance(found, MAPPINGS):
        for key, value in list(found.items()):
            yield from (("{}", key), ("[]", value))
    elif isinstance(found, SEQUENCES):
        yield from (("[]", part) for part in list(found))
    elif isinstance(found, MethodType):
        yield "", found.__self__
    elif isinstance(found, FunctionType):
        yield from (("()", cell.cell_contents) for cell in found.__closure__ or ())
    elif type(found).__module__.startswith(OWN):
        names = list(type(found).__struct_fields__) if isinstance(found, Struct) else []
        names += [name for base in type(found).__mro__ for name in getattr(base, "__slots__", ())]
        yield from ((f".{name}", getattr(found, name)) for name in names if hasattr(found, name))
        yield from ((f".{name}", part) for name, part in list(getattr(found, "__dict__", {}).items()))
