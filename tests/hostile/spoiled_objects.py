# ruff: noqa: E501 - tables of values
"""Objects that are malformed or extreme: valid ones of every kind, spoiled in one to four places by a seeded generator.

Half of the changes keep the type of a value, so that most objects pass the decoders and reach the code behind them.
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import yaml
from msgspec import Raw, Struct

Plain: TypeAlias = dict[str, Any]
Place: TypeAlias = tuple[Any, Any]
"""A container and the key or index of a value in it."""

VALID: tuple[Plain, ...] = tuple(yaml.safe_load(Path(__file__).with_name("valid_objects.yaml").read_text("utf-8")))
NUMBERED = re.compile(rb"-N\b")
MAX_BYTES = 1_500_000
"""No API server has larger objects."""
NAMES = 8
"""So many names of each kind: objects replace each other, and references form chains and cycles."""

INTEGERS: tuple[object, ...] = (
    0, -1, 1, 2, 3, 5, 1000, 10**6, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, -(2**63),
    Raw(b"9223372036854775808"), Raw(b"1e400"), Raw(b"-0.0"), Raw(b"1.5"), Raw(b"1e3"), Raw(b"9" * 400), Raw(b"9" * 5000),
)  # fmt: skip
TEXTS = (
    "", " ", "a" * 64, "a" * 254, "x" * 5000, "\x00", "\x1b[2J\x07", "\u202eabc", "\u00e9\u0301\U0001f4a5", "\ud7ff\uffff", "-", ".",
    "..", "/", "a/b/c", "a/", "/a", "%2e%2e", "*", "=", ",", "a=b,c!=d", "\r\nX: y", "{}", "[]", "null", "true", "NaN",
    "1e999999", "-1", "0x1", "9" * 400, "." + "0" * 200 + "1", "1e-999999", "1E", "1Ei1", "10E", "9223372036854775808", "+5", "1_0",
    " 1", "\u0663", "1.5.5", "-0", "1m", "1n", "0.0000000001", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-02-30T25:61:61Z",
    "-1-01-01T00:00:00Z", "2026-01-01T00:00:00.999999999999Z", "2026-01-01t00:00:00+99:99", "10675199d", "-10m", "1h1h", "9999999h",
    "In", "Exists", "DoesNotExist", "NotIn", "Gt", "Lt", "Equal", "NoSchedule", "NoExecute", "Always", "Never", "All", "ExactCount",
    "Pending", "Running", "Succeeded", "Failed", "Bound", "Released", "WaitForFirstConsumer", "DoNotSchedule", "ScheduleAnyway",
    "zone", "rack", "kubernetes.io/hostname", "metadata.name", "cpg-scheduler", "default-scheduler",
    *(f"{kind}-N" for kind in ("pod", "node", "gang", "tree", "workload", "claim", "volume", "class", "devices", "gpus", "jobset")),
    "true ||", "device.attributes", "device.driver.matches('(a+)+$')", "[1,2,3].map(x, [1,2,3].map(y, x*y)).size() > 2",
    "(" * 300 + "true" + ")" * 300, "!" * 1000 + "true", "quantity('1e999999').isGreaterThan(quantity('1'))",
)  # fmt: skip
LARGE: tuple[Callable[[], object], ...] = (
    lambda: Raw(b"[" * 3000 + b"]" * 3000),
    lambda: Raw(b'{"a":' * 3000 + b"1" + b"}" * 3000),
    lambda: "y" * 200_000,
    lambda: {f"key-{number}": str(number) for number in range(3000)},
    lambda: [f"{number}" for number in range(3000)],
)
OTHER: tuple[object, ...] = (
    None, True, False, 1.5, [], {}, [[]], [None], {"": ""}, {"a": {"b": {"c": None}}}, {"key": []}, {"/": "\u0000"}, Raw(b'"\\ud800"'),
)  # fmt: skip
ODD_KEYS = (
    "",
    " ",
    "a/b/c",
    "\u0000",
    "x" * 317,
    "metadata",
    "spec",
    "key",
    "operator",
    "cpu",
    "pods",
    "hugepages-",
    "zone",
    "__class__",
)
IDENTITY = frozenset({"uid", "resourceVersion"})
"""The API server sets these in every object, so they are not spoiled one by one."""


class _Name(Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _Named(Struct, frozen=True):
    metadata: _Name = _Name()


class SpoiledObject(NamedTuple):
    """An object as JSON, as it was and spoiled."""

    api_version: str
    kind: str
    name: str
    valid: bytes
    body: bytes
    changes: tuple[str, ...]
    """What was done, for messages of failed tests."""

    @property
    def place(self) -> tuple[str, str]:
        """Return API group and kind."""
        return self.api_version.rpartition("/")[0], self.kind


class Spoiler:
    """Generates spoiled objects; equal seeds generate equal objects."""

    def __init__(self, seed: int, valid: Sequence[Plain] = VALID, *, for_server: bool = False) -> None:
        """Start with the seed and valid objects; an API server itself gives them their UID and version."""
        self._originals = valid
        self._for_server = for_server
        self.random = random.Random(seed)  # noqa: S311 - no secret
        self._number = 0
        self._actions: tuple[tuple[Callable[[Plain], str], int], ...] = (
            (self._keep_type, 40),
            (self._other_type, 14),
            (self._remove, 10),
            (self._add, 6),
            (self._splice, 10),
            (self._repeat, 6),
            (self._double_key, 3),
            (self._rename, 6),
            (self._enlarge, 1),
        )

    def world(self) -> Iterator[SpoiledObject]:
        """Yield valid objects, several of each kind: the cluster into which the spoiled ones come."""
        for _ in range(NAMES):
            for valid in self._originals:
                whole, _ = self._valid(valid)
                body = msgspec.json.encode(whole)
                yield SpoiledObject(valid["apiVersion"], valid["kind"], whole["metadata"]["name"], body, body, ())

    def objects(self, count: int) -> Iterator[SpoiledObject]:
        """Yield so many objects."""
        for _ in range(count):
            yield self.next()

    def next(self, suffix: str = "") -> SpoiledObject:
        """Return the next object, its name with a suffix; a few are no JSON at all."""
        random_, valid = self.random, self.random.choice(self._originals)
        whole, meta = self._valid(valid, suffix)
        before = msgspec.json.encode(whole)
        changes = [self.spoil(whole) for _ in range(random_.choice((1, 1, 1, 2, 2, 3, 4)))]
        after = self._numbered(msgspec.json.encode(whole))
        if len(after) > MAX_BYTES:
            changes, after = ["nothing: it would be too large"], before
        if random_.random() < 0.03:
            changes.append("bytes")
            after = self._bad_bytes(after)
        if not self._for_server:
            after = self._identified(after, meta)
        return SpoiledObject(valid["apiVersion"], valid["kind"], meta["name"], before, after, tuple(changes))

    def _valid(self, valid: Plain, suffix: str = "") -> tuple[Plain, Plain]:
        """Return a valid object as an API server has it, and a copy of its metadata."""
        self._number += 1
        whole: Plain = msgspec.json.decode(self._numbered(msgspec.json.encode(valid)))
        whole["metadata"]["name"] += suffix
        if self._for_server:
            return whole, dict(whole["metadata"])
        given = {"uid": f"uid-{self._number}", "resourceVersion": str(self._number), "generation": 1}
        meta = whole["metadata"] = {**whole["metadata"], **given, "creationTimestamp": "2026-01-01T00:00:00Z"}
        return whole, dict(meta)

    def _identified(self, body: bytes, before: Plain) -> bytes:
        """Give an object with another name or namespace another UID, as no two objects have the same."""
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            meta = msgspec.json.decode(body, type=_Named).metadata
            if (meta.name, meta.namespace) != (before["name"], before.get("namespace", "")):
                uid = before["uid"].encode()
                return body.replace(b'"%b"' % uid, b'"%b-renamed"' % uid)
        return body

    def _numbered(self, body: bytes) -> bytes:
        return NUMBERED.sub(lambda _: b"-%d" % self.random.randrange(NAMES), body)

    def spoil(self, whole: Plain) -> str:
        """Change a place of an object; return what was done."""
        actions, weights = zip(*self._actions, strict=True)
        action: Callable[[Plain], str] = self.random.choices(actions, weights)[0]
        return action(whole)

    def _place(self, whole: Plain) -> Place:
        """Return a random place, as likely on each level as on the one above it."""
        holder, key = self._inside(whole)
        while isinstance(holder[key], dict | list) and holder[key] and self.random.random() < 0.85:
            holder, key = self._inside(holder[key])
        return holder, key

    def _inside(self, holder: Any) -> Place:  # noqa: ANN401 - JSON
        keys = [key for key in holder if key not in IDENTITY] if isinstance(holder, dict) else range(len(holder))
        return holder, self.random.choice(keys or list(holder))

    def _keep_type(self, whole: Plain) -> str:
        holder, key = self._place(whole)
        value = holder[key]
        if isinstance(value, bool):
            holder[key] = not value
        elif isinstance(value, int | float):
            holder[key] = self.random.choice(INTEGERS)
        elif isinstance(value, str):
            holder[key] = self.random.choice(TEXTS)
        elif isinstance(value, list):
            self.random.shuffle(value)
            del value[self.random.randrange(len(value) + 1) :]
        else:
            holder[key] = {}
        return f"{key} = {_shown(holder[key])}"

    def _other_type(self, whole: Plain) -> str:
        holder, key = self._place(whole)
        holder[key] = self.random.choice((*INTEGERS, *TEXTS, *OTHER))
        return f"{key} = {_shown(holder[key])}"

    def _remove(self, whole: Plain) -> str:
        holder, key = self._place(whole)
        del holder[key]
        return f"no {key}"

    def _add(self, whole: Plain) -> str:
        holder, _ = self._place(whole)
        key, value = self.random.choice(ODD_KEYS), self.random.choice((*INTEGERS, *TEXTS, *OTHER))
        if isinstance(holder, dict):
            holder[key] = value
        else:
            holder.append(value)
        return f"added {key[:20]!r}: {_shown(value)}"

    def _splice(self, whole: Plain) -> str:
        """Put a value where another one of an object of any kind is, or another object's spec or status."""
        holder, key = self._place(whole)
        other = msgspec.json.decode(msgspec.json.encode(self.random.choice(VALID)))
        source, name = self._place(other)
        if self.random.random() < 0.5 and isinstance(holder, dict):
            key = name if isinstance(name, str) else key
        holder[key] = source[name]
        return f"{key} = {_shown(source[name])}"

    def _repeat(self, whole: Plain) -> str:
        lists = [(holder, key) for holder, key in _places(whole) if isinstance(holder[key], list) and holder[key]]
        if not lists:
            return self._keep_type(whole)
        holder, key = self.random.choice(lists)
        holder[key] = holder[key] * self.random.choice((2, 3, 10, 200))
        return f"{key} has {len(holder[key])}"

    def _double_key(self, whole: Plain) -> str:
        maps = [(holder, key) for holder, key in _places(whole) if isinstance(holder[key], dict) and holder[key]]
        if not maps:
            return self._add(whole)
        holder, key = self.random.choice(maps)
        name = self.random.choice(list(holder[key]))
        second = msgspec.json.encode({name: self.random.choice((*INTEGERS, *TEXTS, *OTHER))})
        holder[key] = Raw(msgspec.json.encode(holder[key])[:-1] + b"," + second[1:])
        return f"{name} twice"

    def _rename(self, whole: Plain) -> str:
        meta = whole.get("metadata")
        if not isinstance(meta, dict):
            return self._remove(whole)
        key = self.random.choice(("name", "namespace", "deletionTimestamp", "creationTimestamp", "generation"))
        meta[key] = self.random.choice((*TEXTS, *INTEGERS[:5]))
        return f"metadata.{key} = {_shown(meta[key])}"

    def _enlarge(self, whole: Plain) -> str:
        holder, key = self._place(whole)
        holder[key] = self.random.choice(LARGE)()
        return f"{key} is large"

    def _bad_bytes(self, body: bytes) -> bytes:
        at = self.random.randrange(len(body))
        odd = self.random.choice(
            (b"", b"\xff\xfe", b"\x00", b"{", b"]", b'"', b"\xed\xa0\x80", b"\n", b"1e", b"NaN", b"//")
        )
        return self.random.choice(
            (body[:at], body[:at] + odd + body[at:], body[:at] + odd + body[at + 1 :], body + odd)
        )


def _places(holder: Any) -> Iterator[Place]:  # noqa: ANN401 - JSON
    for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
        yield holder, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _shown(value: object) -> str:
    return repr(bytes(value) if isinstance(value, Raw) else value)[:60]
