"""Match tolerations with taints by the rules of ``Toleration.ToleratesTaint`` in k8s.io/api.

``Gt`` and ``Lt`` are alpha in Kubernetes 1.37 (TaintTolerationComparisonOperators). They are always supported here: an
API server without the gate refuses pods that use them.
"""

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from cpg_api.core.node import Taint
from cpg_api.core.pod import Toleration
from cpg_api.quantity import parse_int64

BLOCKING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
"""The effects that exclude a node; ``PreferNoSchedule`` only lowers its score."""

_CANONICAL = re.compile(r"-?[1-9][0-9]*|0")


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether the toleration matches the taint.

    As in Kubernetes an empty effect or key matches all. With ``Equal`` an empty key still compares the value.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Equal" | "":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Gt" | "Lt":
            return _compares(toleration, taint)
        case _:
            return False


def untolerated_taints(
    taints: Iterable[Taint] | None,
    tolerations: Iterable[Toleration] | None,
    effects: AbstractSet[str] = BLOCKING_EFFECTS,
) -> tuple[Taint, ...]:
    """Return the taints of these effects that no toleration matches, in the node's order."""
    if not taints:
        return ()
    borne = tuple(tolerations or ())
    return tuple(
        taint for taint in taints if taint.effect in effects and not any(tolerates(one, taint) for one in borne)
    )


def first_untolerated_taint(
    taints: Iterable[Taint] | None,
    tolerations: Iterable[Toleration] | None,
    effects: AbstractSet[str] = BLOCKING_EFFECTS,
) -> Taint | None:
    """Return the taint that Kubernetes names as the reason, or None."""
    return next(iter(untolerated_taints(taints, tolerations, effects)), None)


def _compares(toleration: Toleration, taint: Taint) -> bool:
    """Return whether the taint's number is above (Gt) or below (Lt) the toleration's; False without two numbers."""
    bound, number = _parse_canonical(toleration.value), _parse_canonical(taint.value)
    if bound is None or number is None:
        return False
    return number > bound if toleration.operator == "Gt" else number < bound


def _parse_canonical(text: str) -> int | None:
    """Read an integer without plus sign or leading zeros. This is stricter than Gt and Lt of node affinity."""
    return parse_int64(text) if _CANONICAL.fullmatch(text) else None
