"""Names of instantiated groups: who writes a pod template must be able to tell them beforehand.

A name is made of the Workload, the template, and one number for each level from the root down whose template says how
many ``replicas`` there are: ``train-workers-1``. It depends on nothing else, so that a group keeps its name whatever
happens to others. Two cases would break that, and get the head of the name and a hash of the whole of it instead:
a name too long for a label, by which pods find their group, and a template whose numbered names could be those of
another template, such as ``a`` beside ``a-0``.
"""

import hashlib
import re
from collections.abc import Collection, Iterable

from cpg_api.schema import MAX_LABEL

_HASH_DIGITS = 10
_NUMBERS = re.compile(r"(-[0-9]+)+")


def group_name(workload: str, template: str, numbers: Iterable[int], *, ambiguous: bool = False) -> str:
    """Return the name of one group; ``numbers`` say which replica it is on each level that has several."""
    whole = "-".join((workload, template, *map(str, numbers)))
    if len(whole) <= MAX_LABEL and not ambiguous:
        return whole
    identity = "/".join((workload, template, *map(str, numbers)))
    digest = hashlib.sha256(identity.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{whole[: MAX_LABEL - _HASH_DIGITS - 1].rstrip('-.')}-{digest}"


def ambiguous_templates(names: Collection[str]) -> frozenset[str]:
    """Return the templates to which appending numbers may give another template's name, whatever the numbers are."""
    return frozenset(
        name
        for name in names
        if any(other.startswith(name) and _NUMBERS.fullmatch(other, len(name)) for other in names if other != name)
    )
