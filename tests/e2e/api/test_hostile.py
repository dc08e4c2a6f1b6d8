"""Hostile objects: the widest tree, the longest list, a wrong type in every field."""

import asyncio
import copy
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest

from cpg_api.scheduling.workload import MOST_NAMES
from cpg_client.connection import APPLY_YAML
from cpg_client.errors import ApiError

if TYPE_CHECKING:
    from tests.e2e.api.conftest import Api

Object = dict[str, Any]
Path = tuple[str | int, ...]

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

BASIC: Object = {"basic": {}}


def widest_tree() -> Object:
    """Return a Workload with as many templates as the lists allow, with the longest names."""
    numbers = itertools.count()

    def template(levels: int) -> Object:
        made: Object = {"name": f"{next(numbers):063}", "schedulingPolicy": BASIC}
        if levels:
            made["podGroupTemplates"] = [template(0) for _ in range(8)]
        if levels > 1:
            made["compositePodGroupTemplates"] = [template(levels - 1) for _ in range(8)]
        return made

    spec = {"compositePodGroupTemplates": [template(3) for _ in range(8)]}
    assert next(numbers) == MOST_NAMES
    return {"metadata": {"name": "widest"}, "spec": spec}


async def refusal(api: "Api", kind: str, body: Object, validation: str = "Strict") -> ApiError | None:
    """Return the error of the API server for an object, or None if it is accepted."""
    try:
        await api.create(kind, {"metadata": {"generateName": "hostile-"}, **body}, validation)
    except ApiError as error:
        return error
    return None


def paths(value: object, path: Path = ()) -> Iterator[Path]:
    """Yield the path of every value inside a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*path, key)
        yield from paths(item, (*path, key))


def value_at(whole: object, path: Path) -> object:
    """Return the value at a path."""
    for key in path:
        whole = cast("dict[str | int, object]", whole)[key]
    return whole


def replaced(whole: Object, path: Path, value: object) -> Object:
    """Return a copy with another value at a path."""
    made = copy.deepcopy(whole)
    cast("dict[str | int, object]", value_at(made, path[:-1]))[path[-1]] = value
    return made


async def test_the_widest_tree_is_accepted_and_can_be_updated(api: "Api") -> None:
    """Objects within the limits of all lists are within the limits of the API server, also for updates."""
    tree = widest_tree()
    tree["spec"]["compositePodGroupTemplates"][7]["schedulingPolicy"] = {"gang": {"minGroupCount": 1}}
    await api.create("Workload", tree)
    path = "/spec/compositePodGroupTemplates/7/schedulingPolicy/gang/minGroupCount"
    await api.change("Workload", "widest", [{"op": "replace", "path": path, "value": 2}])


async def test_a_duplicate_name_in_the_widest_tree_is_refused(api: "Api") -> None:
    """Names in different branches are compared too, and the error names the duplicate."""
    tree = widest_tree()
    tree["metadata"]["name"] = "twice"
    first, *_, last = tree["spec"]["compositePodGroupTemplates"]
    last["podGroupTemplates"][7]["name"] = first["compositePodGroupTemplates"][0]["podGroupTemplates"][0]["name"]
    error = await refusal(api, "Workload", tree)
    assert error is not None
    assert f"`{last['podGroupTemplates'][7]['name']}` is there more than once" in error.message


@pytest.mark.parametrize("levels", [5, 8, 60])
async def test_a_deep_tree_is_refused_with_the_reason(api: "Api", levels: int) -> None:
    """The error has the maximum depth, whatever the depth, also when unknown fields are ignored."""
    tree: Object = {
        "name": "leaf",
        "schedulingPolicy": BASIC,
        "podGroupTemplates": [{"name": "x", "schedulingPolicy": BASIC}],
    }
    for level in range(levels - 2):
        tree = {"name": f"t{level}", "schedulingPolicy": BASIC, "compositePodGroupTemplates": [tree]}
    for validation in ("Strict", "Warn", "Ignore"):
        error = await refusal(api, "Workload", {"spec": {"compositePodGroupTemplates": [tree]}}, validation)
        assert error is not None
        assert "maximum template hierarchy depth is 4" in error.message


async def test_long_lists_are_refused(api: "Api") -> None:
    """Ten thousand templates, claims or conditions are refused, and the server survives."""
    templates = [{"name": f"t{number}", "schedulingPolicy": BASIC} for number in range(10_000)]
    flat = await refusal(api, "Workload", {"spec": {"podGroupTemplates": templates}})
    claims = [{"name": f"c{number}", "resourceClaimName": "x"} for number in range(10_000)]
    group = await refusal(api, "PodGroup", {"spec": {"schedulingPolicy": BASIC, "resourceClaims": claims}})
    assert flat is not None
    assert "must have at most 8 items" in flat.message
    assert group is not None
    assert "must have at most 4 items" in group.message
    assert await refusal(api, "PodGroup", {"spec": {"schedulingPolicy": BASIC}}) is None


async def test_long_strings_are_refused(api: "Api") -> None:
    """A name of a megabyte is refused for its length."""
    error = await refusal(api, "PodGroup", {"spec": {"schedulingPolicy": BASIC, "priorityClassName": "a" * 1_000_000}})
    assert error is not None
    assert "Too long" in error.message


@pytest.mark.parametrize(("field", "longest"), [("reason", 1024), ("message", 32768), ("type", 316)])
async def test_conditions_have_the_usual_limits(api: "Api", field: str, longest: int) -> None:
    """Reason, message and type have the same maximum length as in every Kubernetes API."""
    await api.create("PodGroup", {"metadata": {"name": f"long-{field}"}, "spec": {"schedulingPolicy": BASIC}})
    condition = {"type": "X", "status": "True", "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    fits, too_long = ({"conditions": [condition | {field: "a" * length}]} for length in (longest, longest + 1))
    await api.change("PodGroup", f"long-{field}", {"status": fits}, "status")
    with pytest.raises(ApiError, match="Too long"):
        await api.change("PodGroup", f"long-{field}", {"status": too_long}, "status")


async def test_the_full_object_is_accepted(api: "Api", full: "tuple[str, Object]") -> None:
    """The next tests change one value of it at a time, so it must be valid."""
    assert await refusal(api, *full) is None


async def test_a_wrong_type_in_any_field_is_refused(api: "Api", full: "tuple[str, Object]") -> None:
    """No field accepts a value of another type, and none accepts a fraction."""
    kind, body = full
    wrong: tuple[object, ...] = (True, 1.5, "x", [], {}, [1], {"x": 1})
    spoiled = [
        (path, value) for path in paths(body) for value in wrong if type(value) is not type(value_at(body, path))
    ]
    answers = await asyncio.gather(*(refusal(api, kind, replaced(body, path, value)) for path, value in spoiled))
    assert [place for place, answer in zip(spoiled, answers, strict=True) if answer is None] == []


async def test_an_unknown_field_in_any_object_is_refused_when_strict(api: "Api", full: "tuple[str, Object]") -> None:
    """No object of the schema is open to unknown fields."""
    kind, body = full
    objects = [path for path in [(), *paths(body)] if isinstance(value_at(body, path), dict)]
    answers = await asyncio.gather(*(refusal(api, kind, replaced(body, (*path, "unknown"), 1)) for path in objects))
    assert [path for path, answer in zip(objects, answers, strict=True) if answer is None] == []
    assert all("unknown field" in answer.message for answer in answers if answer)


async def test_an_unknown_field_is_dropped_when_ignored(api: "Api") -> None:
    """Clients without strict validation get the usual behaviour: the field is not stored."""
    body = {"metadata": {"name": "ignored"}, "spec": {"schedulingPolicy": {"basic": {"x": 1}}, "y": {"z": 2}}}
    await api.create("PodGroup", body, "Ignore")
    spec = (await api.read("PodGroup", "ignored"))["spec"]
    assert spec["schedulingPolicy"] == BASIC
    assert "y" not in spec


async def test_a_field_given_twice_is_refused_when_strict(api: "Api") -> None:
    """Without strict validation the last of two equal keys in JSON would win silently."""
    body = (
        f'{{"apiVersion":"{api.group}/v1alpha3","kind":"PodGroup","metadata":{{"name":"double"}},'
        '"spec":{"schedulingPolicy":{"basic":{}},"schedulingPolicy":{"gang":{"minCount":1}}}}'
    ).encode()
    with pytest.raises(ApiError, match="duplicate field"):
        await api.connection.post(api.path("PodGroup"), body, {"fieldValidation": "Strict"})


async def test_two_writers_share_the_conditions(api: "Api") -> None:
    """Conditions are a map by type, so the conditions of two writers coexist."""
    await api.create("PodGroup", {"metadata": {"name": "shared"}, "spec": {"schedulingPolicy": BASIC}})
    for writer, condition in (("one", "Healthy"), ("two", "PodGroupInitiallyScheduled")):
        status = {
            "conditions": [
                {
                    "type": condition,
                    "status": "True",
                    "reason": "R",
                    "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ]
        }
        body = {
            "apiVersion": f"{api.group}/v1alpha3",
            "kind": "PodGroup",
            "metadata": {"name": "shared"},
            "status": status,
        }
        await api.connection.patch(
            api.path("PodGroup", "shared", "status"),
            body,
            APPLY_YAML,
            params={"fieldManager": writer, "force": "true"},
        )
    conditions = (await api.read("PodGroup", "shared"))["status"]["conditions"]
    assert {condition["type"]: condition["status"] for condition in conditions} == {
        "PodGroupInitiallyScheduled": "True",
        "Healthy": "True",
    }
