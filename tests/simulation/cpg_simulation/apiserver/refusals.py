"""The refusals of an API server, each with the code, the reason and the causes of a real one."""

from typing import Any

import msgspec

from cpg_simulation.apiserver.kinds import Kind
from cpg_simulation.apiserver.values import Answer

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
SUCCESS: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


class RefusedError(Exception):
    """A request that is answered with a ``Status`` of failure."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        status: dict[str, Any] = SUCCESS | {"status": "Failure", "message": message, "code": code}
        status |= ({"reason": reason} if reason else {}) | ({"details": details} if details else {})
        self.answer = Answer(code, msgspec.json.encode(status))


def not_found(kind: Kind, name: str) -> RefusedError:
    """Refuse a request about an object that does not exist."""
    return RefusedError(404, "NotFound", f'{kind.key} "{name}" not found', _details(kind, name))


def unknown_path() -> RefusedError:
    """Refuse a request about a resource that is not served."""
    return RefusedError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(kind: Kind, name: str) -> RefusedError:
    """Refuse to create an object again."""
    return RefusedError(409, "AlreadyExists", f'{kind.key} "{name}" already exists', _details(kind, name))


def conflict(kind: Kind, name: str, why: str = MODIFIED, named: str = "") -> RefusedError:
    """Refuse a write that is based on an old version, another UID, or another state; some name the kind otherwise."""
    details = _details(kind, name) | ({"kind": named} if named else {})
    why = f'Operation cannot be fulfilled on {named or kind.key} "{name}": {why}'
    return RefusedError(409, "Conflict", why, details)


def managed_by_others(conflicts: list[tuple[str, str]]) -> RefusedError:
    """Refuse an apply of fields that other managers own; each conflict is a manager and a field."""
    causes = [
        {"reason": "FieldManagerConflict", "message": f'conflict with "{manager}"', "field": path}
        for manager, path in conflicts
    ]
    number = f"{len(causes)} conflict{'s' if len(causes) > 1 else ''}"
    message = f"Apply failed with {number}: " + ", ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
    return RefusedError(409, "Conflict", message, {"causes": causes})


def invalid(
    kind: Kind, name: str, field: str, why: str, reason: str = "FieldValueInvalid", *, named: str = ""
) -> RefusedError:
    """Refuse an object with an invalid field."""
    group = f".{kind.resource.group}" if kind.resource.group else ""
    details = _details(kind, name) | {
        "kind": named or kind.resource.kind,
        "causes": [{"reason": reason, "message": why, "field": field}],
    }
    return RefusedError(422, "Invalid", f'{kind.resource.kind}{group} "{name}" is invalid: {field}: {why}', details)


def bad_request(why: str) -> RefusedError:
    """Refuse a request that cannot be read."""
    return RefusedError(400, "BadRequest", why)


def forbidden(kind: Kind, name: str, why: str, causes: list[dict[str, str]] | None = None) -> RefusedError:
    """Refuse a request by admission."""
    details = _details(kind, name) | ({"causes": causes} if causes else {})
    return RefusedError(403, "Forbidden", f'{kind.key} "{name}" is forbidden: {why}', details)


def expired(why: str) -> RefusedError:
    """Refuse a version that has been compacted."""
    return RefusedError(410, "Expired", why)


def too_large_version(asked: int, current: int) -> RefusedError:
    """Refuse to read at a version that does not exist yet."""
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    why = f"Timeout: Too large resource version: {asked}, current: {current}"
    return RefusedError(504, "Timeout", why, {"causes": causes, "retryAfterSeconds": 1})


def _details(kind: Kind, name: str) -> dict[str, Any]:
    group = {"group": kind.resource.group} if kind.resource.group else {}
    return {"name": name, **group, "kind": kind.resource.plural}
