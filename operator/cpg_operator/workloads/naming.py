"""Names of instantiated groups: authors of pod templates have to know them in advance.

A name consists of the Workload, the template, and one number for each level from the root on that has ``replicas``:
``train-workers-1``. It depends on nothing else, so a group keeps its name whatever happens to others. Two cases would
break that, and get the head of the name and a hash of all of it instead: a name too long for the label by which pods
name their group, and a template with numbered names that could be those of another template, such as ``a`` beside
``a-0``.
"""

import hashlib
import re
from collections.abc import Collection, Iterable

from cpg_api.schema import MAX_LABEL

_HASH_DIGITS = 10
_NUMBERS = re.compile(r"(-[0-9]+)+")


def group_name(workload: str, template: str, numbers: Iterable[int], *, ambiguous: bool = False) -> str:
    """Return the name of one group; ``numbers`` are its replica numbers, one for each level that has several."""
    whole = "-".join((workload, template, *map(str, numbers)))
    if len(whole) <= MAX_LABEL and not ambiguous:
        return whole
    identity = "/".join((workload, template, *map(str, numbers)))
    digest = hashlib.sha256(identity.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{whole[: MAX_LABEL - _HASH_DIGITS - 1].rstrip('-.')}-{digest}"


def derived_name(workload: str, template: str, numbers: Iterable[int]) -> str:
    """Return the name of a group that pods derive from their owner. No part has a dot, so it is never ambiguous."""
    return ".".join((workload, template, *map(str, numbers)))


def ambiguous_templates(names: Collection[str]) -> frozenset[str]:
    """Return the templates that get the name of another template by appending some numbers."""
    return frozenset(
        name
        for name in names
        if any(other.startswith(name) and _NUMBERS.fullmatch(other, len(name)) for other in names if other != name)
    )
