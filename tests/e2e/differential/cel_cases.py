"""Random expressions and devices. The expressions are mostly well-typed, and use all that the evaluator supports.

Left out are results that differ from run to run upstream, such as lists made from the keys of a map.
"""

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

GRAMMAR: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("cel_grammar.yaml").read_text(encoding="utf-8"))
DRIVERS = ("gpu.example.com", "nic.example.com")
DOMAINS = (*DRIVERS, "other.example.com")
ELEMENTS = ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration")
SCALARS = (*ELEMENTS, "quantity", "semver")
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
AMOUNTS = ("0", "1", "80Gi", "1.5", "500m", "10", "-2", "1e3", str(2**63 - 1), "12345678901234567890", "1n", "0.1Gi")
CHOICES: dict[str, Sequence[str]] = {
    "name": tuple(NAMES),
    "key": ('"a"', '"b"', '"model"', '"z"', '"count"'),
    "domain": [f'"{one}"' for one in (*DOMAINS, "absent")],
    "index": ("0", "0", "1", "1", "2", "-1", "1u"),
    "pattern": GRAMMAR["patterns"],
    "typename": GRAMMAR["type_names"],
}
"""Holes that get one of a few texts."""
RANGES = (
    'device.attributes["{}"]',
    'device.capacity["{}"]',
    "device.attributes",
    'device.attributes["{}"].modes',
    'device.attributes["{}"].lanes',
    "[]",
    "{{}}",
)
"""Of these, the types of the elements are not known when the expression is checked."""


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
        insertion = self._random.choice((*GRAMMAR["noise"], ""))
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
            return str(self._random.choice(GRAMMAR["literals"][kind]))
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
        """Return what a hole with a name of its own gets."""
        choose = self._random.choice
        match name:
            case "attribute":
                access = choose((".{}", '["{}"]')).format(choose(list(NAMES)))
                found = f'device.attributes["{choose(DOMAINS)}"]{access}'
            case "capacity":
                found = f'device.capacity["{choose(DOMAINS)}"].{choose(CAPACITIES)}'
            case "number":
                found = f"({self._expression(choose(('int', 'uint', 'double')), 1)})"
            case _:
                return choose(CHOICES[name]) if name in CHOICES else None
        return found

    def _scalar(self, kind: str, depth: int) -> str:
        roll = self._random.random()
        if kind == "bool" and roll < 0.22:
            return self._quantifier(depth)
        if roll > 0.9:
            return self._fill(self._random.choice(GRAMMAR["any"]), kind, depth)
        element = self._random.choice(SCALARS) if kind in {"bool", "int"} else kind
        return self._fill(self._random.choice(GRAMMAR["productions"][kind]), element, depth)

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
        is_double = self._random.random() < 0.5
        match self._random.choice("lllmmd"):
            case "l":
                range_ = self._part(f"list({element})", depth - 1)
                variables = {other: "int", one: element} if is_double else {one: element}
            case "m":
                range_ = self._part(f"map({element})", depth - 1)
                variables = {other: "string", one: element} if is_double else {other: "string"}
            case _:
                domain = self._random.choice(DOMAINS)
                range_ = self._random.choice(RANGES).format(domain)
                variables = {one: "string", other: element} if is_double else {one: "string"}
        return f"{range_}.{macro}({', '.join(variables)}, {self._with(variables, 'bool', depth - 1)})"

    def _list(self, inner: str, depth: int) -> str:
        if self._random.random() < 0.3:
            return self._list_macro(inner, depth)
        special: Sequence[str] = GRAMMAR["lists_of"].get(inner, ())
        sorted_ones = ("{list(T)}.sort()", "[{T}, {T}].sort()") if inner in ELEMENTS else ()
        templates = (*GRAMMAR["lists"], *(*special, *sorted_ones) * 2)
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
        return self._fill(self._random.choice(GRAMMAR["maps"]), inner, depth)

    def _optional(self, inner: str, depth: int) -> str:
        return self._fill(self._random.choice(GRAMMAR["optionals"]), inner, depth)
