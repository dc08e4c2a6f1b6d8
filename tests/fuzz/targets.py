"""What is fuzzed: functions of bytes that raise where a property does not hold.

A target catches the documented errors of the code and raises everything else; its docstring has its other properties.
``bench/fuzz.py`` runs them under a fuzzer that follows coverage, the unit tests with kept inputs.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import Struct
from tests.client.test_http1_differential import read_ours, read_theirs
from tests.engine.cel.test_selectors import CASES, DEVICE, DRIVER
from tests.hostile.spoiled_objects import VALID

from cpg_api.conditions import status_since
from cpg_api.core.affinity import NodeSelector
from cpg_api.core.node import Taint
from cpg_api.core.pod import Toleration
from cpg_api.decoding import decode
from cpg_api.integrations.policy import read_policy
from cpg_api.integrations.registry import DEFAULT_INTEGRATIONS, owner_kinds
from cpg_api.meta import Condition, LabelSelector
from cpg_api.nesting import cut_items, cut_nesting
from cpg_api.parsing import Rejected, parse_list, parse_object
from cpg_api.quantity import (
    INT64_MAX,
    NANO,
    QuantityError,
    format_quantity,
    milli_value,
    nano_value,
    parse_int64,
    value,
)
from cpg_api.scheduling.expected import ExpectedPodsError, read_expected_pods
from cpg_api.scheduling.partial_release import RELEASE_ANNOTATION, read_partial_release
from cpg_api.scheduling.replicas import with_replicas
from cpg_api.selectors import LabelMatcher, NodeMatcher
from cpg_api.tolerations import tolerates
from cpg_client import kubeconfig
from cpg_client.errors import ApiError, ClientError, KubeconfigError
from cpg_client.http1 import MalformedResponseError
from cpg_client.settings import SettingsError
from cpg_client.slim_answers import slim_event, slim_page
from cpg_client.stores import ObjectStore
from cpg_client.watching import LineSplitter, read_event
from cpg_engine.cel.errors import CelError
from cpg_engine.cel.functions.texts import compile_pattern
from cpg_engine.cel.functions.times import format_timestamp, parse_duration, parse_timestamp
from cpg_engine.cel.selectors import CompiledSelector
from cpg_engine.testing.builders import metadata, pod_group, workload
from cpg_operator import settings as operator_settings
from cpg_scheduler import settings as scheduler_settings
from cpg_scheduler.cache.projections import KEPT

KINDS: tuple[type[Struct], ...] = (*KEPT, *(kind.type for kind in owner_kinds(DEFAULT_INTEGRATIONS)))
JSON = tuple(map(msgspec.json.encode, VALID))


class Target(NamedTuple):
    """A function of bytes, and the inputs to begin with."""

    check: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    is_json: bool = False
    """Whether inputs are also changed as JSON."""


def split(data: bytes, count: int) -> tuple[bytes, bytes]:
    """Return the first bytes, which steer a target, and the rest."""
    return data[:count].ljust(count, b"\0"), data[count:]


def text_of(data: bytes) -> str:
    """Return bytes as text: no decoder of JSON accepts lone surrogates."""
    return data.decode("utf-8", "replace")


def check_objects(data: bytes) -> None:
    """Read an object: it reads back the same, alone and in a list, and has a projection."""
    (number,), body = split(data, 1)
    kind = KINDS[number % len(KINDS)]
    with suppress(msgspec.DecodeError):
        decode(body, kind)
    found = parse_object(body, kind)
    if isinstance(found, Rejected):
        assert found.problems
        return
    again = parse_object(msgspec.json.encode(found), kind)
    assert again == found
    if json_of(body) is not None:
        assert parse_list(b'{"items":[%s]}' % body, kind).items == (found,)
    if kind in KEPT:
        KEPT[kind].project(found)


def json_of(body: bytes) -> Any:  # noqa: ANN401 - JSON
    """Return JSON as Python reads it, or None where it is none, or is nested too deeply for a list."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if cut_items(b'{"items":[%s]}' % body) == b'{"items":[%s]}' % body else None


def check_nesting(data: bytes) -> None:
    """Cut JSON twice, which is as once; few levels are not cut, and slim answers are slim already."""
    cut = cut_nesting(data)
    assert cut_nesting(cut) == cut
    if json_of(data) is not None:
        assert cut == data
    for slim in (slim_page, slim_event):
        once = slim(cut)
        assert slim(once) == once


def check_quantities(data: bytes) -> None:
    """Compare a quantity with exact fractions, rounded away from zero; it can be written and read again."""
    text = text_of(data)
    try:
        nanos = nano_value(text)
    except QuantityError:
        return
    assert nanos == exact_nanos(text)
    assert -INT64_MAX <= value(text) <= INT64_MAX
    assert -INT64_MAX <= milli_value(text) <= INT64_MAX
    for resource in ("memory", "pods"):
        assert value(format_quantity(resource, value(text))) == value(text)
    assert milli_value(format_quantity("cpu", milli_value(text))) == milli_value(text)


def exact_nanos(text: str) -> int:
    """Return the value of a quantity by its definition."""
    powers = {
        suffix: Fraction(10) ** (3 * place - 9) for place, suffix in enumerate(["n", "u", "m", "", "k", *"MGTPE"])
    }
    powers |= {f"{suffix}i": Fraction(1024) ** place for place, suffix in enumerate("KMGTPE", 1)}
    digits = text.rstrip("numkKMGTPEi")
    suffix = text[len(digits) :]
    mantissa, _, exponent = digits.lower().partition("e")
    power = max(-400, min(400, int(exponent or "0")))
    exact = Fraction(mantissa.rstrip(".") or "0") * powers[suffix] * Fraction(10) ** power * NANO
    magnitude = -(-abs(exact).numerator // exact.denominator)
    return min(magnitude, INT64_MAX * NANO) * (-1 if exact < 0 else 1)


def check_selectors(data: bytes) -> None:
    """Compile a selector twice, which gives the same results; numbers are those of Go."""
    for kind in (LabelSelector, NodeSelector, Toleration):
        found = parse_object(data, kind)
        if isinstance(found, LabelSelector):
            labels = LabelMatcher.compile(found)
            assert labels.matches({"app": "web"}) is labels.matches({"app": "web"})
            assert LabelMatcher.compile(found) == labels
        elif isinstance(found, NodeSelector):
            nodes = NodeMatcher.compile(found)
            assert nodes.matches({"number": "4"}, "n") is nodes.matches({"number": "4"}, "n")
        elif isinstance(found, Toleration):
            tolerates(found, Taint(key="busy", value="4", effect="NoSchedule"))
    text = text_of(data)
    number = parse_int64(text)
    if number is not None:
        assert number == int(text)


def check_times(data: bytes) -> None:
    """Read a timestamp, write it and read it again."""
    text = text_of(data)
    status_since((Condition(type="a", status="True", last_transition_time=text),), "a")
    for read in (parse_duration, parse_timestamp):
        try:
            found = read(text)
            if read is parse_timestamp:
                assert parse_timestamp(format_timestamp(cast("Any", found))) == found
        except CelError:
            pass


def check_annotations(data: bytes) -> None:
    """Read annotations of groups, Workloads and owners: they have a meaning or a problem."""
    text = text_of(data)
    group = pod_group("a", meta=metadata("a"))
    for key in ("scheduling.cpg.dev/expected-pods", RELEASE_ANNOTATION):
        group.metadata.annotations[key] = text
    with suppress(ExpectedPodsError):
        read_expected_pods(group)
    after = read_partial_release(group, 600.0).after_seconds
    assert after is None or 0 <= after < float("inf")
    found = workload([])
    found.metadata.annotations["scheduling.cpg.dev/replicas"] = text
    with_replicas(found)
    keys = ("required-topology", "min-groups", "min-count", "disruption-mode", "replica-by")
    policy = read_policy({f"scheduling.cpg.dev/{key}": text for key in keys})
    for number in (policy.min_groups, policy.min_count):
        assert number is None or 0 < number < 2**31


def check_http(data: bytes) -> None:
    """Read a response in pieces and as a whole, and with h11, with the same result."""
    steps, wire = split(data, 4)
    if not wire:
        return
    try:
        ours = read_ours(wire, list(steps))
    except MalformedResponseError:
        return
    assert read_ours(wire, []) == ours
    if not wire.startswith(b"HTTP/1.1 1"):  # h11 skips no empty lines after an interim response
        assert read_theirs(wire) == ours


def check_watch(data: bytes) -> None:
    """Split a stream into lines, whatever its pieces are; each is an event or an error, and a store takes it."""
    (step, number), wire = split(data, 2)
    splitter, pieces = LineSplitter(), range(0, len(wire), step + 1)
    lines = [line for start in pieces for line in splitter.feed(wire[start : start + step + 1])]
    assert lines == [line for line in wire.split(b"\n")[:-1] if line]
    kind = tuple(KEPT)[number % len(KEPT)]
    store = ObjectStore(kind, KEPT[kind].project, reduce=KEPT[kind].reduce)
    for line in lines or [wire]:
        try:
            event = read_event(line)
        except ClientError:
            continue
        known = dict(store.objects)
        for change in store.apply(event):
            key = change.key  # type: ignore[union-attr] # a store reports no Synced
            known.pop(key, None)
            if hasattr(change, "new"):
                known[key] = change.new
        assert known == dict(store.objects)
    error = ApiError.from_response(409, wire, retry_after=text_of(wire[:20]))
    assert len(str(error)) <= 600


@contextmanager
def file_of(data: bytes) -> Iterator[Path]:
    """Provide a file with these bytes."""
    with tempfile.NamedTemporaryFile(buffering=0) as file:
        file.write(data)
        yield Path(file.name)


def check_kubeconfig(data: bytes) -> None:
    """Load a kubeconfig, or get an error that says why not."""
    with file_of(data) as path, suppress(KubeconfigError):
        kubeconfig.load(path)


def check_settings(data: bytes) -> None:
    """Load the settings of each process, or get an error that says why not."""
    for module in (scheduler_settings, operator_settings):
        with file_of(data) as path, suppress(SettingsError):
            module.load(path)


def check_cel(data: bytes) -> None:
    """Evaluate an expression for a device; compiled again, it has the same result."""
    text = text_of(data)
    assert verdict(text) == verdict(text)


def verdict(text: str) -> str:
    """Return the result of an expression, or its error."""
    try:
        return str(CompiledSelector(text).matches(DRIVER, DEVICE))
    except CelError as error:
        return f"{type(error).__name__} {error}"


def check_patterns(data: bytes) -> None:
    """Compile and search a pattern, unless it is refused."""
    pattern, _, text = text_of(data).partition("\0")
    with suppress(CelError):
        compile_pattern(pattern).search(text, 0)


HEAD = b"\0\3\5\7HTTP/1.1 200 OK\r\n"
KUBECONFIG = b"""apiVersion: v1
current-context: a
contexts: [{name: a, context: {cluster: b, user: c, namespace: n}}]
clusters:
- name: b
  cluster: {server: "https://127.0.0.1:1", certificate-authority-data: YQ==, insecure-skip-tls-verify: false}
users:
- name: c
  user:
    token: t
    exec: {apiVersion: client.authentication.k8s.io/v1, command: x, args: [a], env: [{name: A, value: b}]}
"""
SETTINGS = b"""listen: 127.0.0.1:10271
namespaces: [a]
leaderElection: {leaseDuration: 15, renewDeadline: 10, retryPeriod: 2}
customIntegrations:
- {group: example.com, version: v1, kind: Fleet, plural: fleets, template: template, roles: roles, roleLabel: a/b}
integrations: [job]
schedulerName: s
"""
TARGETS: Mapping[str, Target] = {
    "objects": Target(
        check_objects, tuple(bytes([number]) + body for number in range(20) for body in JSON[number::20]), is_json=True
    ),
    "nesting": Target(
        check_nesting, (*JSON[:5], b"[" * 300 + b"]" * 300, b'{"type":"ADDED","object":%s}' % JSON[0]), is_json=True
    ),
    "quantities": Target(
        check_quantities, (b"100m", b"1.5Gi", b"2e3", b"-1", b"1E", b".5n", b"9223372036854775807", b"1e-10")
    ),
    "selectors": Target(
        check_selectors,
        (
            b'{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"app","operator":"In","values":["web"]}]}',
            b'{"nodeSelectorTerms":[{"matchExpressions":[{"key":"number","operator":"Gt","values":["3"]}]}]}',
            b'{"key":"busy","operator":"Lt","value":"5","effect":"NoSchedule"}',
            b"-9223372036854775808",
        ),
        is_json=True,
    ),
    "times": Target(
        check_times,
        (b"2026-01-01T00:00:00Z", b"2026-01-01T00:00:00.123+02:00", b"1h30m", b"-1.5s", b"0001-01-01T00:00:00"),
    ),
    "annotations": Target(
        check_annotations, (b'[{"count":2,"spec":{}}]', b"10m", b"default", b"leaf=2,root=1", b"rack", b"17", b"all")
    ),
    "http": Target(
        check_http,
        (
            HEAD + b"Content-Length: 2\r\nRetry-After: 1\r\n\r\nab",
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nabcde\r\n0\r\nT: 1\r\n\r\n",
            HEAD + b"Connection: close\r\n\r\nabc",
            b"\1\1\1\1HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
        ),
    ),
    "watch": Target(
        check_watch,
        tuple(
            b'\x10%c{"type":"ADDED","object":%s}\n{"type":"DELETED","object":%s}\n' % (number, body, body)
            for number, body in enumerate(
                msgspec.json.encode(one | {"metadata": one["metadata"] | {"uid": "u", "resourceVersion": "1"}})
                for one in VALID
            )
        ),
    ),
    "kubeconfig": Target(check_kubeconfig, (KUBECONFIG, b"a: &a [*a]", b"{}", b"2026-01-01")),
    "settings": Target(
        check_settings, (SETTINGS, b"webhook: {listen: ':1', certificates: /c}", b"api: crd\nquiet: .inf")
    ),
    "cel": Target(check_cel, tuple(text.encode() for text, _ in CASES)),
    "patterns": Target(check_patterns, (b"^a+$\0aaa", b"(?i)[[:alpha:]]{2,3}\\pL\0x", b"(a|b)*?\\b\0")),
}
