"""Decoding of objects: a bad object is a result, never a failure."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cpg_api.core.pod import Container, Pod, PodSpec, Toleration
from cpg_api.meta import ObjectMeta
from cpg_api.nesting import MAX_NESTING
from cpg_api.parsing import (
    MAX_PROBLEMS,
    ParsedList,
    Rejected,
    convert_object,
    parse_list,
    parse_object,
)
from cpg_api.problems import Problem
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload

GOOD = b'{"metadata":{"name":"good","namespace":"ns"}}'


def listed(*items: bytes) -> bytes:
    """Return a LIST of items."""
    return b'{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[%s]}' % b",".join(items)


def problems_of(plain: object, kind: type[msgspec.Struct] = Pod) -> list[tuple[str, str]]:
    """Return paths and messages of the problems of plain data; they are the same from bytes and from YAML."""
    found = convert_object(plain, kind)
    assert isinstance(found, Rejected)
    assert parse_object(json.dumps(plain).encode(), kind) == found
    return [(problem.path, problem.message) for problem in found.problems]


def nested(levels: int) -> bytes:
    """Return objects within objects."""
    return b'{"f:a":' * levels + b"{}" + b"}" * levels


def test_a_list_has_items_version_and_continue_token() -> None:
    """Items keep their order."""
    page = parse_list(b'{"metadata":{"resourceVersion":"7","continue":"more"},"items":[%s,{}]}' % GOOD, Pod)
    assert [pod.metadata.key for pod in page.items] == ["ns/good", ""]
    assert (page.rejected, page.resource_version, page.continue_token) == ((), "7", "more")


@pytest.mark.parametrize(
    "data",
    [
        b'{"items":null}',
        b'{"metadata":null,"items":[]}',
        b'{"metadata":{"resourceVersion":null,"continue":null}}',
        b"{}",
    ],
)
def test_an_empty_list_may_be_null_or_absent(data: bytes) -> None:
    """All spellings of an empty list decode to the same."""
    assert parse_list(data, Pod) == ParsedList(items=(), rejected=(), resource_version="", continue_token="")


@pytest.mark.parametrize("data", [b"", b"[]", b'{"items":{}}', b'{"items":[{]}', b"<html>", b'{"items":[]} x'])
def test_a_body_that_is_no_list_is_an_error(data: bytes) -> None:
    """The caller cannot continue without a page."""
    with pytest.raises(msgspec.DecodeError):
        parse_list(data, Pod)


@pytest.mark.parametrize("data", [b"", b"{", b"<html>", b'{"spec":1', b"nul", b'{"spec":1,"x":%s' % nested(5000)])
def test_bytes_that_are_not_json_are_rejected(data: bytes) -> None:
    """A truncated line is not an object, and ends no caller: it is a result like any other misfit."""
    found = parse_object(data, Pod)
    assert isinstance(found, Rejected)
    assert found.name == ""
    assert len(found.problems) == 1


def test_one_bad_object_does_not_stop_the_others() -> None:
    """It is rejected by name, and the valid objects keep their order."""
    bad = b'{"metadata":{"name":"bad","namespace":"ns"},"spec":{"priority":"high"}}'
    page = parse_list(listed(GOOD, bad, b"{}"), Pod)
    assert [pod.metadata.name for pod in page.items] == ["good", ""]
    assert [(one.name, [str(problem) for problem in one.problems]) for one in page.rejected] == [
        ("ns/bad", ["spec.priority: Expected `int | null`, got `str`"])
    ]


def test_a_null_field_counts_as_absent() -> None:
    """In every place."""
    nulls = b'{"metadata":{"name":"good","namespace":"ns","labels":null},"spec":{"nodeName":null},"status":null}'
    assert parse_list(listed(nulls), Pod).items == (parse_object(GOOD, Pod),)
    labels = convert_object({"metadata": {"labels": {"kept": "", "gone": None}}}, Pod)
    assert labels == Pod(metadata=ObjectMeta(labels={"kept": ""}))


def test_all_problems_of_an_object_have_paths() -> None:
    """Fields, items of lists and values of maps, in the order of the model."""
    plain = {
        "metadata": {"name": "p", "labels": {"a": 1, "b": "fine", "c.d/e": []}, "finalizers": "x"},
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": {}}}}, None, 7],
            "hostNetwork": "yes",
            "tolerations": [{"tolerationSeconds": 1.5}],
        },
        "status": [],
    }
    assert problems_of(plain) == [
        ("metadata.labels[a]", "Expected `str`, got `int`"),
        ("metadata.labels[c.d/e]", "Expected `str`, got `array`"),
        ("metadata.finalizers", "Expected `array`, got `str`"),
        ("spec.tolerations[0].tolerationSeconds", "Expected `int | null`, got `float`"),
        ("spec.containers[0].resources.requests[cpu]", "Expected `str | int | float`, got `object`"),
        ("spec.containers[1]", "Expected `object`, got `null`"),
        ("spec.containers[2]", "Expected `object`, got `int`"),
        ("spec.hostNetwork", "Expected `bool`, got `str`"),
        ("status", "Expected `object`, got `array`"),
    ]


def test_missing_required_fields_are_reported_beside_other_problems() -> None:
    """A missing or null field hides no other problem."""
    plain = {"spec": {"priority": "x", "schedulingPolicy": {"gang": {"minCount": None}}, "workloadRef": {}}}
    assert problems_of(plain, PodGroup) == [
        ("spec.workloadRef.workloadName", "Missing, but required"),
        ("spec.workloadRef.templateName", "Missing, but required"),
        ("spec.schedulingPolicy.gang.minCount", "Missing, but required"),
        ("spec.priority", "Expected `int | null`, got `str`"),
    ]
    assert problems_of({}, PodGroup) == [("spec", "Missing, but required")]


def test_problems_are_found_in_nested_templates() -> None:
    """Recursive types are followed as deep as the object goes."""
    inner: dict[str, Any] = {"name": "x", "schedulingPolicy": {}, "priority": True}
    plain = {"spec": {"compositePodGroupTemplates": [{**inner, "compositePodGroupTemplates": [inner]}]}}
    top = "spec.compositePodGroupTemplates[0]"
    assert problems_of(plain, Workload) == [
        (f"{top}.priority", "Expected `int | null`, got `bool`"),
        (f"{top}.compositePodGroupTemplates[0].priority", "Expected `int | null`, got `bool`"),
    ]


@pytest.mark.parametrize(("plain", "called"), [(None, "null"), ([], "array"), ("x", "str"), (1.5, "float")])
def test_a_value_that_is_no_object_is_rejected_without_a_path(plain: object, called: str) -> None:
    """The problem is the object itself."""
    assert problems_of(plain) == [("", f"Expected `object`, got `{called}`")]


def test_the_number_of_problems_is_limited() -> None:
    """A hopeless object does not fill the log."""
    labels = {f"key-{number}": number for number in range(100)}
    assert len(problems_of({"metadata": {"labels": labels}})) == MAX_PROBLEMS


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        ({"name": "n"}, "n"),
        ({"name": "n", "namespace": "ns", "labels": 1, "generation": "x"}, "ns/n"),
        ({"name": 1, "namespace": "ns"}, ""),
        ("x", ""),
    ],
)
def test_a_rejected_object_has_its_name_where_readable(metadata: object, name: str) -> None:
    """Other problems in its metadata do not hide its name."""
    found = convert_object({"metadata": metadata, "spec": 1}, Pod)
    assert isinstance(found, Rejected)
    assert found.name == name


def test_keys_and_values_that_only_yaml_has_are_problems() -> None:
    """A number as the key of a label or a field, and a Python object."""
    found = convert_object({"metadata": {"labels": {1: 2}}, "spec": {"priority": 1j}}, Pod)
    assert isinstance(found, Rejected)
    assert [str(problem) for problem in found.problems] == [
        "metadata.labels: Expected `str`, got `int` as the key 1",
        "metadata.labels[1]: Expected `str`, got `int`",
        "spec.priority: Expected `int | null`, got `complex`",
    ]
    assert convert_object({1: "x"}, Pod) == Rejected("", (Problem("", "Expected `str`"),))


def test_integers_of_any_size_are_exact() -> None:
    """The parser does not check their range."""
    huge = 2**63 + 10**30
    pod = parse_object(b'{"spec":{"priority":%d,"overhead":{"cpu":%d}}}' % (huge, -huge), Pod)
    assert pod == Pod(spec=PodSpec(priority=huge, overhead={"cpu": -huge}))


@pytest.mark.parametrize(
    ("spec", "path", "message"),
    [
        (b'"priority":%s' % (b"9" * 5000), "spec.priority", "Integer value out of range"),
        (b'"overhead":{"cpu":1e999}', "spec.overhead[...]", "Number out of range"),
        (b'"nodeName":"\xff"', "", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    ],
)
def test_numbers_and_strings_that_cannot_be_held_are_rejected(spec: bytes, path: str, message: str) -> None:
    """They cost one object, not the LIST."""
    page = parse_list(listed(GOOD, b'{"metadata":{"name":"odd"},"spec":{%s}}' % spec, GOOD), Pod)
    assert len(page.items) == 2
    assert [(one.name, [(problem.path, problem.message) for problem in one.problems]) for one in page.rejected] == [
        ("odd", [(path, message)])
    ]


def test_a_broken_string_in_the_name_leaves_the_name_empty() -> None:
    """Nothing readable remains of it."""
    (found,) = parse_list(listed(b'{"metadata":{"name":"\xff"}}'), Pod).rejected
    assert found.name == ""


@pytest.mark.parametrize("levels", [100, 900, 100_000])
def test_deep_nesting_in_unknown_fields_is_harmless(levels: int) -> None:
    """Users with the right to create pods can nest managedFields by the thousand: the API server of 1.37 accepts it."""
    hostile = b'{"metadata":{"name":"deep","managedFields":[{"fieldsV1":%s}]},"spec":{"priority":%s}}'
    page = parse_list(listed(GOOD, hostile % (nested(levels), b"5"), hostile % (nested(levels), b'"x"'), GOOD), Pod)
    assert [(pod.metadata.name, pod.spec.priority) for pod in page.items] == [
        ("good", None),
        ("deep", 5),
        ("good", None),
    ]
    assert [one.name for one in page.rejected] == ["deep"]
    assert parse_object(hostile % (nested(levels), b"5"), Pod) == page.items[1]


def test_deep_nesting_in_a_known_field_is_a_problem_at_its_path() -> None:
    """The rest of the object is still checked."""
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"x": deep}
    found = convert_object({"metadata": {"labels": {"a": deep}}}, Pod)
    assert isinstance(found, Rejected)
    assert [problem.path for problem in found.problems] == ["metadata.labels[a]"]
    assert parse_object(b'{"metadata":{"labels":{"a":%s}}}' % nested(5000), Pod) == found


def test_brackets_and_quotes_in_strings_are_no_nesting() -> None:
    """Cutting leaves every string unchanged."""
    text = '"}]\\"' + "{[" * MAX_NESTING
    data = json.dumps({"x": {"metadata": text}, "metadata": {"name": text}}).encode()
    pod = parse_object(data[:-1] + b',"y":%s}' % nested(5000), Pod)
    assert pod == Pod(metadata=ObjectMeta(name=text))


class UnusualTypes(msgspec.Struct):
    """A struct with types that the model does not use."""

    when: msgspec.UnsetType | int = msgspec.UNSET
    rate: float = 0.0
    exact: frozenset[int] = frozenset()


def test_problems_of_unusual_types_have_the_message_of_msgspec() -> None:
    """A type outside the model is rejected without an explanation of its own."""
    assert problems_of({"exact": ["x"]}, UnusualTypes) == [("exact[0]", "Expected `int`, got `str`")]
    assert problems_of({"rate": 10**400}, UnusualTypes) == [("rate", "Number out of range")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
"""Any plain data."""

NAMES = st.text("ab-", min_size=1, max_size=3)
QUANTITIES = (
    st.sampled_from(["1", "100m", "1.5Gi"])
    | st.integers(min_value=0)
    | st.floats(allow_nan=False, allow_infinity=False)
)
PODS = st.builds(
    Pod,
    metadata=st.builds(
        ObjectMeta, name=NAMES, namespace=NAMES, labels=st.dictionaries(NAMES, st.text(max_size=5), max_size=2)
    ),
    spec=st.builds(
        PodSpec,
        priority=st.none() | st.integers(-(2**70), 2**70),
        overhead=st.none() | st.dictionaries(NAMES, QUANTITIES, max_size=2),
        tolerations=st.none() | st.lists(st.builds(Toleration, key=NAMES), max_size=2).map(tuple),
        containers=st.none() | st.lists(st.builds(Container, name=NAMES), max_size=2).map(tuple),
    ),
)
"""Valid pods."""


@st.composite
def near_misses(draw: st.DrawFn) -> object:
    """Draw a valid pod in which one value has been replaced by any other."""
    plain: Any = json.loads(msgspec.json.encode(draw(PODS)))
    place = draw(st.sampled_from([(), ("metadata",), ("metadata", "labels"), ("spec",), ("spec", "containers")]))
    here = plain
    for step in place:
        here = here.setdefault(step, {}) if isinstance(here, dict) else {}
    if isinstance(here, dict):
        keys = [*here, "spec", "labels", "annotations", "containers", "priority", "volumes"]
        here[draw(st.sampled_from(keys))] = draw(JSON)
    return plain


@given(JSON | near_misses())
@example({"metadata": {"labels": {"": 0}}})
def test_any_data_is_an_object_or_rejected(plain: object) -> None:
    """No exception occurs, bytes and plain data give the same result, and it has at least msgspec's problem."""
    for kind in (Pod, PodGroup, Workload):
        found = convert_object(plain, kind)
        assert isinstance(found, kind | Rejected)
        if isinstance(found, Rejected):
            assert 0 < len(found.problems) <= MAX_PROBLEMS
            with pytest.raises(msgspec.ValidationError):
                msgspec.convert(plain, kind)
        assert parse_object(json.dumps(plain).encode(), kind) == found


@given(PODS)
def test_valid_objects_survive_the_round_trip(pod: Pod) -> None:
    """Encoded and decoded they are equal, alone and in a LIST."""
    data = msgspec.json.encode(pod)
    assert parse_object(data, Pod) == pod
    assert convert_object(json.loads(data), Pod) == pod
    assert parse_list(listed(data, data), Pod).items == (pod, pod)


@given(st.lists(PODS.map(msgspec.json.encode) | st.sampled_from([b"0", b"[]", b'{"spec":"x"}']), max_size=6))
def test_a_list_has_all_valid_objects_in_order(items: list[bytes]) -> None:
    """Of n items with k bad ones, n - k are decoded and k are rejected."""
    alone = [parse_object(item, Pod) for item in items]
    page = parse_list(listed(*items), Pod)
    assert list(page.items) == [found for found in alone if isinstance(found, Pod)]
    assert list(page.rejected) == [found for found in alone if isinstance(found, Rejected)]
    assert len(page.items) + len(page.rejected) == len(items)


@pytest.mark.parametrize("plain", [{"\ud800": 1}, {"metadata": {"\ud800": 1}}])
def test_a_key_that_is_no_text_is_rejected(plain: object) -> None:
    """Python's own decoder of JSON, which Kopf uses, accepts a lone surrogate."""
    found = convert_object(plain, PodGroup)
    assert isinstance(found, Rejected)
    assert found.name == ""
