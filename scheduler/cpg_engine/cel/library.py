"""All functions of the environment in which Kubernetes evaluates device selectors, by name.

It is the environment for stored expressions of ``k8s.io/apiserver`` 1.37: the standard library with comparisons across
numeric types, optionals, ``ext.Strings(2)``, ``ext.Sets``, ``ext.Lists(3)``, comprehensions of two variables, bindings,
and the libraries of Kubernetes.
"""

from collections.abc import Callable, Iterable
from typing import Final

from cpg_engine.cel.functions import lists, operators, optionals, texts, times
from cpg_engine.cel.functions.conversions import CONVERSIONS, identity, type_of
from cpg_engine.cel.quantities import Quantity, is_quantity, parse_quantity, to_integer
from cpg_engine.cel.semver import Semver, is_semver, parse_semver
from cpg_engine.cel.signatures import Cost, Function, declare
from cpg_engine.cel.values import CelDuration, Optional, Uint

REFUSED: Final = {
    name: library
    for library, names in {
        "URL": "url isURL getScheme getHost getHostname getPort getEscapedPath getQuery",
        "IP and CIDR": "ip isIP ip.isCanonical family isUnspecified isLoopback isLinkLocalMulticast isLinkLocalUnicast "
        "isGlobalUnicast cidr isCIDR containsIP containsCIDR prefixLength masked",
        "format": "format format.named validate format.dns1123Label format.dns1123Subdomain format.dns1035Label "
        "format.qualifiedName format.dns1123LabelPrefix format.dns1123SubdomainPrefix format.dns1035LabelPrefix "
        "format.labelValue format.uri format.uuid format.byte format.date format.datetime",
        "authorizer": "path serviceAccount group resource subresource namespace name check allowed reason errored "
        "error fieldSelector labelSelector",
    }.items()
    for name in names.split()
}
"""Functions that Kubernetes has and this evaluator leaves out, with their library."""

# The order of overloads matters: an unknown type becomes that of the first one that fits.

Row = tuple[str, str, Callable[..., object]] | tuple[str, str, Callable[..., object], Cost]
"""Name (of a member with a dot in front), signature, implementation, and cost."""

_COMPARABLE: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_SUMMABLE: Final[dict[str, object]] = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": CelDuration(0)}

_ORDERS: Final[dict[str, Callable[[int], bool]]] = {
    "_<_": lambda order: order < 0,
    "_<=_": lambda order: order <= 0,
    "_>_": lambda order: order > 0,
    "_>=_": lambda order: order >= 0,
}


_ARITHMETIC: Final = {
    "_+_": (
        "bytes, bytes -> bytes",
        "double, double -> double",
        "duration, duration -> duration",
        "duration, timestamp -> timestamp",
        "timestamp, duration -> timestamp",
        "int, int -> int",
        "list(A), list(A) -> list(A)",
        "string, string -> string",
        "uint, uint -> uint",
    ),
    "_-_": (
        "double, double -> double",
        "duration, duration -> duration",
        "int, int -> int",
        "timestamp, duration -> timestamp",
        "timestamp, timestamp -> duration",
        "uint, uint -> uint",
    ),
    "_*_": ("double, double -> double", "int, int -> int", "uint, uint -> uint"),
    "_/_": ("double, double -> double", "int, int -> int", "uint, uint -> uint"),
    "_%_": ("int, int -> int", "uint, uint -> uint"),
}
_ORDERED: Final = (
    *("bool, bool", "int, int", "int, double", "int, uint", "uint, uint", "uint, double", "uint, int"),
    *("double, double", "double, int", "double, uint", "string, string", "bytes, bytes"),
    *("timestamp, timestamp", "duration, duration"),
)


def _operators() -> Iterable[Row]:
    """Yield the rows of the operators."""
    for operator, signatures in _ARITHMETIC.items():
        for signature in signatures:
            yield operator, signature, operators.arithmetic(operator), Cost.LINEAR if operator == "_+_" else Cost.STEP
    for one in ("double", "int"):
        yield "-_", f"{one} -> {one}", operators.negate
    yield "!_", "bool -> bool", operators.invert
    for name, is_met in _ORDERS.items():
        for pair in _ORDERED:
            yield name, f"{pair} -> bool", operators.order(is_met)
    for one in ("bytes", "list(A)", "map(A, B)", "string"):
        yield "size", f"{one} -> int", operators.size
        yield ".size", f"{one} -> int", operators.size


_PLANNED: Final[tuple[Row, ...]] = tuple(
    (name, signature, identity)  # the planner evaluates these itself
    for name, signatures in {
        "_==_": ("A, A -> bool",),
        "_!=_": ("A, A -> bool",),
        "_in_": ("A, list(A) -> bool", "A, map(A, B) -> bool"),
        "_&&_": ("bool, bool -> bool",),
        "_||_": ("bool, bool -> bool",),
        "_?_:_": ("bool, A, A -> A",),
        "_[_]": (
            "list(A), int -> A",
            "map(A, B), A -> B",
            "optional(list(V)), int -> optional(V)",
            "optional(map(K, V)), K -> optional(V)",
        ),
        "_[?_]": (
            "list(V), int -> optional(V)",
            "optional(list(V)), int -> optional(V)",
            "map(K, V), K -> optional(V)",
            "optional(map(K, V)), K -> optional(V)",
        ),
        ".or": ("optional(V), optional(V) -> optional(V)",),
        ".orValue": ("optional(V), V -> V",),
        "@insert": ("map(K, V), K, V -> map(K, V)", "map(K, V), map(K, V) -> map(K, V)"),
    }.items()
    for signature in signatures
)

_SHARED: Final = frozenset({"size", "matches", "flatten", "sort", "@sortByKeys", "type", "dyn"})
"""Functions beside the operators whose implementation looks at the values itself."""

_STANDARD: Final[tuple[Row, ...]] = (
    ("type", "A -> type(A)", type_of),
    ("dyn", "A -> dyn", identity),
    *((*row, Cost.LINEAR) for row in CONVERSIONS),
    (".contains", "string, string -> bool", str.__contains__, Cost.LINEAR),
    (".endsWith", "string, string -> bool", str.endswith),
    (".startsWith", "string, string -> bool", str.startswith),
    ("matches", "string, string -> bool", texts.matches, Cost.METERED),
    (".matches", "string, string -> bool", texts.matches, Cost.METERED),
    *(
        (f".{name}", signature, times.getter(read))
        for name, read in times.GETTERS.items()
        for signature in ("timestamp -> int", "timestamp, string -> int")
    ),
    (".getMilliseconds", "timestamp -> int", times.get_milliseconds),
    (".getMilliseconds", "timestamp, string -> int", times.get_milliseconds),
    *((f".{name}", "duration -> int", times.whole(unit)) for name, unit in times.UNITS_OF_GETTERS.items()),
)

_OPTIONALS: Final[tuple[Row, ...]] = (
    ("optional.of", "V -> optional(V)", Optional),
    ("optional.ofNonZeroValue", "V -> optional(V)", optionals.of_non_zero),
    ("optional.none", "-> optional(V)", Optional),
    (".value", "optional(V) -> V", optionals.value_of),
    (".hasValue", "optional(V) -> bool", optionals.has_value),
    (".first", "list(V) -> optional(V)", lists.first),
    (".last", "list(V) -> optional(V)", lists.last),
    ("optional.unwrap", "list(optional(V)) -> list(V)", lists.unwrap, Cost.LINEAR),
    (".unwrapOpt", "list(optional(V)) -> list(V)", lists.unwrap, Cost.LINEAR),
)

_STRINGS: Final[tuple[Row, ...]] = tuple(
    (name, signature, run, Cost.LINEAR)
    for name, signature, run in (
        (".charAt", "string, int -> string", texts.char_at),
        (".indexOf", "string, string -> int", texts.index_of),
        (".indexOf", "string, string, int -> int", texts.index_of),
        (".lowerAscii", "string -> string", texts.lower_ascii),
        (".split", "string, string -> list(string)", texts.split),
        (".split", "string, string, int -> list(string)", texts.split),
        (".substring", "string, int -> string", texts.substring),
        (".substring", "string, int, int -> string", texts.substring),
        (".trim", "string -> string", texts.trim),
        (".upperAscii", "string -> string", texts.upper_ascii),
        ("strings.quote", "string -> string", texts.quote),
    )
)

_METERED: Final[tuple[Row, ...]] = (
    (".replace", "string, string, string -> string", texts.replace, Cost.METERED),
    (".replace", "string, string, string, int -> string", texts.replace, Cost.METERED),
    (".join", "list(string) -> string", texts.join, Cost.METERED),
    (".join", "list(string), string -> string", texts.join, Cost.METERED),
    (".lastIndexOf", "string, string -> int", texts.last_index_of, Cost.METERED),
    (".lastIndexOf", "string, string, int -> int", texts.last_index_of, Cost.METERED),
    (".find", "string, string -> string", texts.find, Cost.METERED),
    (".findAll", "string, string -> list(string)", texts.find_all, Cost.METERED),
    (".findAll", "string, string, int -> list(string)", texts.find_all, Cost.METERED),
)

_LISTS: Final[tuple[Row, ...]] = (
    ("sets.contains", "list(T), list(T) -> bool", lists.set_contains, Cost.METERED),
    ("sets.equivalent", "list(T), list(T) -> bool", lists.set_equivalent, Cost.METERED),
    ("sets.intersects", "list(T), list(T) -> bool", lists.set_intersects, Cost.METERED),
    (".slice", "list(T), int, int -> list(T)", lists.slice_list, Cost.LINEAR),
    (".flatten", "list(list(T)) -> list(T)", lists.flatten, Cost.METERED),
    (".flatten", "list(dyn), int -> list(dyn)", lists.flatten, Cost.METERED),
    *((".sort", f"list({one}) -> list({one})", lists.sort, Cost.METERED) for one in _COMPARABLE),
    *((".@sortByKeys", f"list(T), list({one}) -> list(T)", lists.sort_by_keys, Cost.METERED) for one in _COMPARABLE),
    ("lists.range", "int -> list(int)", lists.number_range, Cost.METERED),
    (".reverse", "list(T) -> list(T)", lists.reverse, Cost.LINEAR),
    (".distinct", "list(T) -> list(T)", lists.distinct, Cost.METERED),
    *((".isSorted", f"list({one}) -> bool", lists.is_sorted, Cost.LINEAR) for one in _COMPARABLE),
    *((".sum", f"list({one}) -> {one}", lists.total(zero), Cost.LINEAR) for one, zero in _SUMMABLE.items()),
    *((".max", f"list({one}) -> {one}", lists.extreme("max", 1), Cost.LINEAR) for one in _COMPARABLE),
    *((".min", f"list({one}) -> {one}", lists.extreme("min", -1), Cost.LINEAR) for one in _COMPARABLE),
    (".indexOf", "list(A), A -> int", lists.index_of, Cost.METERED),
    (".lastIndexOf", "list(A), A -> int", lists.last_index_of, Cost.METERED),
    (".includes", "dyn, dyn -> bool", lists.includes, Cost.METERED),
)

_KUBERNETES: Final[tuple[Row, ...]] = (
    ("quantity", "string -> quantity", parse_quantity, Cost.LINEAR),
    ("isQuantity", "string -> bool", is_quantity, Cost.LINEAR),
    ("sign", "quantity -> int", lambda one: (one.number > 0) - (one.number < 0)),
    (".isGreaterThan", "quantity, quantity -> bool", lambda one, other: one.compare(other) > 0),
    (".isLessThan", "quantity, quantity -> bool", lambda one, other: one.compare(other) < 0),
    (".compareTo", "quantity, quantity -> int", Quantity.compare),
    (".asApproximateFloat", "quantity -> double", Quantity.to_double),
    (".asInteger", "quantity -> int", to_integer),
    (".isInteger", "quantity -> bool", lambda one: one.integer is not None),
    (".add", "quantity, quantity -> quantity", Quantity.add),
    (".add", "quantity, int -> quantity", lambda one, number: one.add(Quantity(number))),
    (".sub", "quantity, quantity -> quantity", lambda one, other: one.add(other, -1)),
    (".sub", "quantity, int -> quantity", lambda one, number: one.add(Quantity(number), -1)),
    ("semver", "string -> semver", parse_semver, Cost.LINEAR),
    ("semver", "string, bool -> semver", parse_semver, Cost.LINEAR),
    ("isSemver", "string -> bool", is_semver, Cost.LINEAR),
    ("isSemver", "string, bool -> bool", is_semver, Cost.LINEAR),
    (".isGreaterThan", "semver, semver -> bool", lambda one, other: one.key > other.key),
    (".isLessThan", "semver, semver -> bool", lambda one, other: one.key < other.key),
    (".compareTo", "semver, semver -> int", Semver.compare),
    (".major", "semver -> int", lambda one: one.major),
    (".minor", "semver -> int", lambda one: one.minor),
    (".patch", "semver -> int", lambda one: one.patch),
)


def _build() -> dict[str, Function]:
    functions: dict[str, Function] = {}
    rows = (*_operators(), *_PLANNED, *_STANDARD, *_OPTIONALS, *_STRINGS, *_METERED, *_LISTS, *_KUBERNETES)
    for name, signature, run, *cost in rows:
        plain = name.removeprefix(".")
        function = functions.setdefault(plain, Function(plain, is_shared="_" in plain or plain in _SHARED))
        function.overloads.append(declare(signature, run, *cost, is_member=name.startswith(".")))
    return functions


FUNCTIONS: Final = _build()
"""The functions by their full names."""
