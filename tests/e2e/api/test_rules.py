"""Every case, against our CRDs on both versions and against the native API."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from cpg_client.errors import ApiError

if TYPE_CHECKING:
    from tests.e2e.api.conftest import Api, Case

Step = Callable[[], Awaitable[dict[str, Any]]]

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


async def test_our_api_answers_as_the_case_expects(api: "Api", case: "Case") -> None:
    """Schema and CEL accept or refuse the object, with the expected message."""
    await run(api, case)


async def test_the_native_api_answers_alike_or_as_the_case_expects(native_api: "Api", comparable_case: "Case") -> None:
    """A case names the differences."""
    await run(native_api, comparable_case.on_native())


async def run(api: "Api", case: "Case") -> None:
    """Take the steps of a case; only the last one may be refused, and only if that is expected."""
    *before, last = steps(api, case)
    for step in before:
        await step()
    refusal = await refusal_of(last)
    if refusal is None:
        assert case.expect == "accepted"
        now = await api.read(case.kind, case.object_name)
        assert case.stored is None or case.stored == excerpt(now, case.stored)
    else:
        assert case.expect == "refused", refusal.message
        assert refusal.status in {400, 403, 422}
        assert case.message in refusal.message
        assert not case.field or any(names_field(cause.field, case.field) for cause in refusal.causes), refusal.causes


async def refusal_of(step: Step) -> ApiError | None:
    """Return the error of the API server for a step, or None if it is accepted."""
    try:
        await step()
    except ApiError as error:
        return error
    return None


def names_field(named: str, expected: str) -> bool:
    """Return whether an error names the expected field; 1.30 leaves out `status.` in a status."""
    return named in {expected, expected.removeprefix("status.")}


def steps(api: "Api", case: "Case") -> list[Step]:
    """Return the steps of a case, in order."""
    kind, name, validation = case.kind, case.object_name, case.validation
    todo: list[Step] = [lambda: api.create(kind, case.body, validation)]
    if (update := case.update) is not None:
        todo.append(lambda: api.change(kind, name, update, validation=validation))
    if (status := case.status) is not None:
        todo.append(lambda: api.change(kind, name, status, "status", validation=validation))
    return todo


def excerpt(whole: object, like: object) -> object:
    """Return the fields of a JSON value that another one has; None for absent fields."""
    if isinstance(like, dict) and isinstance(whole, dict):
        return {key: excerpt(whole.get(key), value) for key, value in like.items()}
    return whole
