"""Random expressions and devices. The expressions are mostly well-typed, and use all that the evaluator supports.

Left out are results that differ from run to run upstream, such as lists made from the keys of a map.
"""

import random
import re
from typing import Any, NamedTuple

DRIVERS = ("gpu.example.com", "nic.example.com")
DOMAINS = (*DRIVERS, "other.example.com")
SCALARS = ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration", "quantity", "semver")
ELEMENTS = ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration")
VALUES: dict[str, tuple[Any, ...]] = {
    "int": (0, 1, 2, 8, -3, 2**63 - 1, -(2**63)),
    "bool": (True, False),
    "string": ("", "a100", "Ünï", "v1.2", "abcabc", "10Gi"),
    "version": ("1.0.0", "1.2.3", "10.0.1-rc.1+x", "1.2.3-alpha"),
}
NAMES = {
    "count": "int",
    "healthy": "bool",
    "model": "string",
    "firmware": "version",
    "lanes": "ints",
    "flags": "bools",
    "modes": "strings",
    "apis": "versions",
}
CAPACITIES = ("memory", "slots")
AMOUNTS = (
    "0",
    "1",
    "80Gi",
    "1.5",
    "500m",
    "10",
    "-2",
    "1e3",
    "9223372036854775807",
    "12345678901234567890",
    "1n",
    "0.1Gi",
)

LITERALS = {
    "bool": ("true", "false"),
    "int": ("0", "1", "2", "-1", "3", "7", "0x1F", "9223372036854775807", "-9223372036854775808", "1000"),
    "uint": ("0u", "1u", "2u", "18446744073709551615u", "0xFFu"),
    "double": ("0.0", "1.0", "-2.5", "1e300", ".5", "1e-7", "3.0", "123456789.0", "9223372036854775808.0"),
    "string": (
        '""',
        '"a"',
        "'abcabc'",
        '"Ünï😀"',
        'r"\\d+"',
        '"1.2.3"',
        '"10Gi"',
        '"true"',
        '"-5"',
        '"  a b "',
        '"\\u00e9\\n"',
        '"model"',
        '"""x"y"""',
        '"1h30m"',
        '"2024-02-29T12:00:00.5Z"',
        '"v1.02"',
        '"A,b,,c"',
        '"NaN"',
        '"1e400"',
    ),
    "bytes": ('b""', 'b"abc"', "b'\\xff'", 'b"é"', 'br"\\x"'),
    "timestamp": (
        'timestamp("2024-02-29T23:59:59.123456789Z")',
        'timestamp("1969-12-31T23:59:59-01:30")',
        "timestamp(0)",
        'timestamp("9999-12-31T23:59:59Z")',
        'timestamp("0001-01-01T00:00:00Z")',
        "timestamp(1700000000)",
    ),
    "duration": (
        'duration("0s")',
        'duration("1h30m5.25s")',
        'duration("-1.5h")',
        'duration("2562047h")',
        'duration("100ms")',
        'duration("1us1ns")',
    ),
    "quantity": tuple(f'quantity("{one}")' for one in AMOUNTS),
    "semver": (
        'semver("1.2.3")',
        'semver("1.2.3-rc.1")',
        'semver("v01.2", true)',
        'semver("2.0.0+b")',
        'semver("1.2")',
    ),
}
PATTERNS = (
    '"^a"',
    '"[0-9]+"',
    '"b*"',
    '""',
    '"(a|b)+c"',
    "r'\\b\\w+\\b'",
    '"é|n"',
    '"("',
    '"a{2,3}"',
    '"$"',
    '"(?i)A"',
)

# What makes a value of a type; {x} is an expression of the type x, and T any element type.
PRODUCTIONS: dict[str, tuple[str, ...]] = {
    "bool": (
        "{bool} && {bool}",
        "{bool} || {bool}",
        "!{bool}",
        "{T} == {T}",
        "{T} != {T}",
        "{E} < {E}",
        "{E} <= {E}",
        "{E} > {E}",
        "{E} >= {E}",
        "{number} < {number}",
        "{number} >= {number}",
        "{T} in {list(T)}",
        "{key} in {map(T)}",
        "{string} in device.attributes",
        "{key} in device.attributes[{domain}]",
        "{domain} in device.attributes",
        "{domain} in device.capacity",
        "has(device.attributes[{domain}].{name})",
        "has({map(T)}.a)",
        "has(device.capacity[{domain}].memory)",
        "{string}.startsWith({string})",
        "{string}.endsWith({string})",
        "{string}.contains({string})",
        "{string}.matches({pattern})",
        "matches({string}, {pattern})",
        "bool({string})",
        "isQuantity({string})",
        "isSemver({string})",
        "isSemver({string}, {bool})",
        "{quantity}.isGreaterThan({quantity})",
        "{quantity}.isLessThan({quantity})",
        "{quantity}.isInteger()",
        "{semver}.isGreaterThan({semver})",
        "{semver}.isLessThan({semver})",
        "{optional(T)}.hasValue()",
        "{list(T)} == {list(T)}",
        "{map(T)} == {map(T)}",
        "{list(E)}.isSorted()",
        "sets.contains({list(T)}, {list(T)})",
        "sets.equivalent({list(T)}, {list(T)})",
        "sets.intersects({list(T)}, {list(T)})",
        "{list(T)}.includes({T})",
        "{attribute}.includes({T})",
        "type({T}) == type({T})",
        "type({T}) == {typename}",
        "device.allowMultipleAllocations",
        "{attribute}",
        "{list(list(T))} == {list(list(T))}",
        "{optional(T)} == {optional(T)}",
        "dyn({T}) == {E}",
        "{attribute} == {T}",
        "device.driver == {string}",
        "{attribute} > {E}",
        "{capacity}.compareTo({quantity}) >= 0",
        "dyn({T}).isGreaterThan({quantity})",
        "{attribute}.startsWith({string})",
        "{E} == {attribute}",
        "dyn({T}) != dyn({E})",
        "[dyn({T})] == [dyn({E})]",
        "{map(list(T))} == {map(list(T))}",
    ),
    "int": (
        "{int} + {int}",
        "{int} - {int}",
        "{int} * {int}",
        "{int} / {int}",
        "{int} % {int}",
        "-{int}",
        "size({string})",
        "{string}.size()",
        "size({list(T)})",
        "{map(T)}.size()",
        "size({bytes})",
        "int({string})",
        "int({double})",
        "int({uint})",
        "int({timestamp})",
        "int({duration})",
        "{string}.indexOf({string})",
        "{string}.indexOf({string}, {int})",
        "{string}.lastIndexOf({string})",
        "{string}.lastIndexOf({string}, {int})",
        "{list(T)}.indexOf({T})",
        "{list(T)}.lastIndexOf({T})",
        "{quantity}.compareTo({quantity})",
        "sign({quantity})",
        "{quantity}.asInteger()",
        "{semver}.compareTo({semver})",
        "{semver}.major()",
        "{semver}.minor()",
        "{semver}.patch()",
        "{timestamp}.getFullYear()",
        "{timestamp}.getMonth()",
        "{timestamp}.getDayOfYear()",
        "{timestamp}.getDayOfMonth()",
        "{timestamp}.getDate()",
        "{timestamp}.getDayOfWeek()",
        "{timestamp}.getHours()",
        '{timestamp}.getHours("+05:30")',
        '{timestamp}.getMinutes("-02:15")',
        "{timestamp}.getMilliseconds()",
        "{duration}.getHours()",
        "{duration}.getMinutes()",
        "{duration}.getSeconds()",
        "{duration}.getMilliseconds()",
        "{list(int)}.sum()",
        "{attribute}",
        "size({attribute})",
        "size(device.attributes[{domain}])",
        '{timestamp}.getSeconds("UTC")',
        "int({int})",
        "dyn({string}).indexOf({string})",
    ),
    "uint": (
        "{uint} + {uint}",
        "{uint} - {uint}",
        "{uint} * {uint}",
        "{uint} / {uint}",
        "{uint} % {uint}",
        "uint({string})",
        "uint({double})",
        "uint({int})",
        "{list(uint)}.sum()",
    ),
    "double": (
        "{double} + {double}",
        "{double} - {double}",
        "{double} * {double}",
        "{double} / {double}",
        "-{double}",
        "double({string})",
        "double({int})",
        "double({uint})",
        "{quantity}.asApproximateFloat()",
        "{list(double)}.sum()",
    ),
    "string": (
        "{string} + {string}",
        "string({int})",
        "string({uint})",
        "string({double})",
        "string({bool})",
        "string({bytes})",
        "string({timestamp})",
        "string({duration})",
        "{string}.charAt({int})",
        "{string}.lowerAscii()",
        "{string}.upperAscii()",
        "{string}.replace({string}, {string})",
        "{string}.replace({string}, {string}, {int})",
        "{string}.substring({int})",
        "{string}.substring({int}, {int})",
        "{string}.trim()",
        "strings.quote({string})",
        "{list(string)}.join()",
        "{list(string)}.join({string})",
        "{string}.find({pattern})",
        "{attribute}",
        "device.driver",
        "string({attribute})",
        "{attribute}.lowerAscii()",
        "{attribute} + {string}",
    ),
    "bytes": ("{bytes} + {bytes}", "bytes({string})"),
    "timestamp": (
        "{timestamp} + {duration}",
        "{duration} + {timestamp}",
        "{timestamp} - {duration}",
        "timestamp({int})",
        "timestamp({string})",
    ),
    "duration": (
        "{duration} + {duration}",
        "{duration} - {duration}",
        "{timestamp} - {timestamp}",
        "duration({string})",
        "{list(duration)}.sum()",
    ),
    "quantity": (
        "{capacity}",
        "{capacity}",
        "quantity({string})",
        "{quantity}.add({quantity})",
        "{quantity}.add({int})",
        "{quantity}.sub({quantity})",
        "{quantity}.sub({int})",
    ),
    "semver": ("{attribute}", "semver({string})", "semver({string}, {bool})"),
}
ANY = (
    "({bool} ? {T} : {T})",
    "{list(T)}[{index}]",
    "{map(T)}[{key}]",
    "{map(T)}.a",
    "{optional(T)}.value()",
    "{optional(T)}.orValue({T})",
    "{attribute}",
    "dyn({T})",
    "[{T}, {T}][{index}]",
    "{list(T)}.first().orValue({T})",
)
LISTS = (
    "[{T}, {T}]",
    "[{T}]",
    "[]",
    "[{T}, {T}, {T}]",
    "{list(T)} + {list(T)}",
    "{list(T)}.reverse()",
    "{list(T)}.distinct()",
    "{list(T)}.slice({index}, {int})",
    "{list(list(T))}.flatten()",
    "[?{optional(T)}, {T}]",
    "{list(T)}[?{index}].orValue({T})",
    "optional.unwrap([{optional(T)}, {optional(T)}])",
    "[{optional(T)}].unwrapOpt()",
    "({bool} ? {list(T)} : {list(T)})",
)
OPTIONALS = (
    "optional.of({T})",
    "optional.none()",
    "optional.ofNonZeroValue({T})",
    "{list(T)}[?{index}]",
    "{map(T)}[?{key}]",
    "{map(T)}.?a",
    "{optional(T)}.or({optional(T)})",
    "{list(T)}.first()",
    "{list(T)}.last()",
    "{optional(map(T))}.a",
    "{optional(list(T))}[{index}]",
    "{optional(map(T))}[?{key}]",
    "device.attributes[{domain}].?{name}",
    "device.attributes[?{domain}].?{name}",
    "device.attributes[{domain}][?{key}]",
    "device.?attributes[{domain}].{name}",
)
MAPS = ('{{"a": {T}, "b": {T}}}', '{{"a": {T}}}', "{{}}", '{{?"a": {optional(T)}, "c": {T}}}', '{{"a": {T}, "a": {T}}}')
NOISE = (
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ".",
    ",",
    "?",
    ":",
    "&&",
    "||",
    "==",
    "!",
    "-",
    "+",
    "in",
    "null",
    "1",
    "2u",
    '"x"',
    "device",
    "true",
    "1.5",
    "x",
    "dyn",
    "/",
    "<",
    "if",
    "b'a'",
    ".?",
    "[?",
    "// c\n",
    "\n",
    "'",
    "has",
    "__result__",
)


class Case(NamedTuple):
    """An expression and a device."""

    expression: str
    driver: str
    device: dict[str, Any]


class Generator:
    """Makes cases from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self._variables: list[tuple[str, str]] = []
        self._budget = 0

    def case(self) -> Case:
        """Return the next case."""
        self._budget = self._random.choice((2, 5, 12, 25))
        text = self._expression("bool", self._random.choice((2, 3, 4, 5)))
        if self._random.random() < 0.07:
            text = self._noisy(text)
        return Case(text, self._random.choice(DRIVERS), self._device())

    def _noisy(self, text: str) -> str:
        """Replace, remove or insert a token."""
        tokens = re.findall(r"\w+|\"[^\"]*\"|'[^']*'|\s+|.", text, re.DOTALL)
        place = self._random.randrange(len(tokens))
        insertion = self._random.choice((*NOISE, ""))
        tokens[place : place + self._random.randrange(2)] = [insertion]
        return "".join(tokens)

    # Devices.

    def _device(self) -> dict[str, Any]:
        driver_names = self._names(NAMES)
        attributes = {name: self._attribute(name.rpartition("/")[2]) for name in driver_names}
        amounts = {name: {"value": self._random.choice(AMOUNTS)} for name in self._names(dict.fromkeys(CAPACITIES))}
        device: dict[str, Any] = {"name": "device", "attributes": attributes, "capacity": amounts}
        shareable = self._random.choice((None, True, False))
        return device if shareable is None else {**device, "allowMultipleAllocations": shareable}

    def _names(self, names: dict[str, Any]) -> list[str]:
        """Return names, some with a domain; the driver's domain is never given twice."""
        plain = [name for name in names if self._random.random() < 0.5]
        return plain + [f"other.example.com/{name}" for name in names if self._random.random() < 0.4]

    def _attribute(self, name: str) -> dict[str, Any]:
        kind = NAMES[name]
        if not kind.endswith("s"):
            return {kind: self._random.choice(VALUES[kind])}
        single = kind.removesuffix("s")
        return {kind: [self._random.choice(VALUES[single]) for _ in range(self._random.randrange(1, 4))]}

    # Expressions.

    def _expression(self, kind: str, depth: int) -> str:
        """Return an expression of a type; rarely of another one."""
        roll = self._random.random()
        if roll < 0.012:
            kind = self._random.choice(SCALARS)
        if roll > 0.7 or depth <= 0:
            fitting = [name for name, one in self._variables if one == kind]
            if fitting:
                return self._random.choice(fitting)
        self._budget -= 1
        if depth <= 0 or self._budget < 0:
            return self._leaf(kind)
        if self._random.random() < 0.15:
            return self._bound(kind, depth)
        inner = self._inner(kind)
        if inner is None:
            return self._scalar(kind, depth)
        outer = kind.partition("(")[0]
        return {"list": self._list, "map": self._map, "optional": self._optional}[outer](inner, depth)

    def _inner(self, kind: str) -> str | None:
        return kind.partition("(")[2][:-1] if "(" in kind else None

    def _leaf(self, kind: str) -> str:
        inner = self._inner(kind)
        if inner is None:
            return self._random.choice(LITERALS[kind])
        leaf = self._leaf(inner)
        if kind.startswith("list"):
            return self._random.choice(("[]", f"[{leaf}]", f"[{leaf}, {self._leaf(inner)}]"))
        if kind.startswith("map"):
            return self._random.choice((f'{{"a": {leaf}}}', f'{{"a": {leaf}, "b": {self._leaf(inner)}}}'))
        return self._random.choice((f"optional.of({leaf})", "optional.none()"))

    def _fill(self, template: str, kind: str, depth: int) -> str:
        """Replace the holes of a template by expressions."""
        element = self._random.choice(ELEMENTS)

        def hole(match: "re.Match[str]") -> str:
            if match[0] in {"{{", "}}"}:
                return match[0][0]
            name = re.sub(r"\bT\b", kind, re.sub(r"\bE\b", element, match[1]))
            special = self._special(name)
            return special if special is not None else self._part(name, depth - 1)

        return re.sub(r"\{\{|\}\}|\{([^{}]+)\}", hole, template)

    def _part(self, kind: str, depth: int) -> str:
        text = self._expression(kind, depth)
        return f"({text})" if re.search(r" (\S{1,2}|in) |^[-!]", text) else text

    def _special(self, name: str) -> str | None:
        choose = self._random.choice
        match name:
            case "name":
                return choose(list(NAMES))
            case "key":
                return choose(('"a"', '"b"', '"model"', '"z"', '"count"'))
            case "domain":
                return choose([f'"{one}"' for one in (*DOMAINS, "absent")])
            case "index":
                return (
                    choose(("0", "1", "2", "-1", "0u", "1.0"))[:1]
                    if self._random.random() < 0.9
                    else choose(("-1", "1u"))
                )
            case "pattern":
                return choose(PATTERNS) if self._random.random() < 0.9 else self._leaf("string")
            case "attribute":
                access = choose((".{}", '["{}"]'))
                return f'device.attributes["{choose(DOMAINS)}"]' + access.format(choose(list(NAMES)))
            case "capacity":
                return f'device.capacity["{choose(DOMAINS)}"].{choose(CAPACITIES)}'
            case "typename":
                return choose(
                    (
                        "int",
                        "string",
                        "bool",
                        "list",
                        "map",
                        "type",
                        "null_type",
                        "google.protobuf.Duration",
                        "google.protobuf.Timestamp",
                        "optional_type",
                        "uint",
                        "bytes",
                        "double",
                    )
                )
            case "number":
                return f"({self._expression(choose(('int', 'uint', 'double')), 1)})"
            case _:
                return None

    def _scalar(self, kind: str, depth: int) -> str:
        roll = self._random.random()
        if kind == "bool" and roll < 0.22:
            return self._quantifier(depth)
        if roll > 0.9:
            return self._fill(self._random.choice(ANY), kind, depth)
        element = self._random.choice(SCALARS) if kind in {"bool", "int"} else kind
        return self._fill(self._random.choice(PRODUCTIONS[kind]), element, depth)

    def _variable(self) -> str:
        return self._random.choice("xyzuvw") + self._random.choice(("", "1", "_"))

    def _with(self, variables: dict[str, str], kind: str, depth: int) -> str:
        """Return an expression in which more variables are in scope."""
        before = list(self._variables)
        self._variables = [one for one in before if one[0] not in variables] + list(variables.items())
        text = self._expression(kind, depth)
        self._variables = before
        return text

    def _bound(self, kind: str, depth: int) -> str:
        name, bound = self._variable(), self._random.choice(SCALARS)
        value = self._part(bound, depth - 1)
        if self._random.random() < 0.3:
            target = self._part(f"optional({bound})", depth - 1)
            flat = f"{target}.optFlatMap({name}, {self._with({name: bound}, f'optional({kind})', depth - 1)})"
            mapped = f"{target}.optMap({name}, {self._with({name: bound}, kind, depth - 1)})"
            return f"{self._random.choice((flat, mapped))}.orValue({self._part(kind, depth - 2)})"
        return f"cel.bind({name}, {value}, {self._with({name: bound}, kind, depth - 1)})"

    def _quantifier(self, depth: int) -> str:
        macro = self._random.choice(("all", "exists", "exists_one", "existsOne"))
        one, other = self._random.sample(("x", "y", "z", "v"), 2)
        element = self._random.choice(SCALARS)
        roll = self._random.random()
        if roll < 0.45:
            range_, variables = self._part(f"list({element})", depth - 1), {one: element}
            if self._random.random() < 0.4:
                variables = {other: "int", one: element}
        elif roll < 0.7:
            range_, variables = self._part(f"map({element})", depth - 1), {other: "string"}
            if self._random.random() < 0.6:
                variables[one] = element
        else:
            domain = self._random.choice(DOMAINS)
            range_ = self._random.choice(
                (
                    f'device.attributes["{domain}"]',
                    f'device.capacity["{domain}"]',
                    "device.attributes",
                    f'device.attributes["{domain}"].modes',
                    f'device.attributes["{domain}"].lanes',
                )
            )
            variables = {one: "string"} if self._random.random() < 0.6 else {one: "string", other: element}
        return f"{range_}.{macro}({', '.join(variables)}, {self._with(variables, 'bool', depth - 1)})"

    def _list(self, inner: str, depth: int) -> str:
        roll = self._random.random()
        if roll < 0.3:
            return self._list_macro(inner, depth)
        special = {
            "string": (
                "{string}.split({string})",
                "{string}.split({string}, {int})",
                "{string}.findAll({pattern})",
                "{string}.findAll({pattern}, {int})",
                "{attribute}",
            ),
            "int": ("lists.range({index})", "{attribute}"),
        }.get(inner, ())
        if inner in ELEMENTS:
            special += ("{list(T)}.sort()", "[{T}, {T}].sort()")
        templates = (*LISTS, *special, *special)
        return self._fill(self._random.choice(templates), inner, depth)

    def _list_macro(self, inner: str, depth: int) -> str:
        one, other = self._random.sample(("x", "y", "z", "v"), 2)
        element = self._random.choice(ELEMENTS)
        range_ = self._part(f"list({element})", depth - 1)
        value = self._with({one: element}, inner, depth - 1)
        condition = self._with({one: element}, "bool", depth - 2)
        both = {one: "int", other: element}
        match self._random.randrange(6):
            case 0:
                return f"{range_}.map({one}, {value})"
            case 1:
                return f"{range_}.map({one}, {condition}, {value})"
            case 2:
                filtered = self._with({one: inner}, "bool", depth - 1)
                return f"{self._part(f'list({inner})', depth - 1)}.filter({one}, {filtered})"
            case 3:
                return f"{range_}.transformList({one}, {other}, {self._with(both, inner, depth - 1)})"
            case 4:
                checked = self._with(both, "bool", depth - 2)
                return f"{range_}.transformList({one}, {other}, {checked}, {self._with(both, inner, depth - 1)})"
            case _:
                keys = self._with({one: inner}, self._random.choice(("int", "string")), depth - 1)
                return f"{self._part(f'list({inner})', depth - 1)}.sortBy({one}, {keys})"

    def _map(self, inner: str, depth: int) -> str:
        if self._random.random() < 0.35:
            one, other = self._random.sample(("x", "y", "z", "v"), 2)
            element = self._random.choice(ELEMENTS)
            range_ = self._part(f"map({element})", depth - 1)
            both = {one: "string", other: element}
            value = self._with(both, inner, depth - 1)
            condition = f"{self._with(both, 'bool', depth - 2)}, " if self._random.random() < 0.4 else ""
            if self._random.random() < 0.5:
                return f"{range_}.transformMap({one}, {other}, {condition}{value})"
            entries = f'{{{one} + "1": {value}}}'
            return f"{range_}.transformMapEntry({one}, {other}, {condition}{entries})"
        return self._fill(self._random.choice(MAPS), inner, depth)

    def _optional(self, inner: str, depth: int) -> str:
        return self._fill(self._random.choice(OPTIONALS), inner, depth)
