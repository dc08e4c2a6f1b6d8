"""One round over all groups, which removes our finalizer from each of them.

Only the fields that this takes are decoded: any user with write access can nest the rest of a group by the thousand,
and the answer to a patch is the whole group. An error of one group, or of one list, stops no other; it is reported at
the end.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from urllib.parse import urlencode

import msgspec
import pykube  # type: ignore[import-untyped]  # it has no types

from cpg_api.decoding import decode
from cpg_api.parsing import ParsedList, parse_list
from cpg_api.scheduling.names import FINALIZER
from cpg_api.scheduling.workload import Workload
from cpg_client.connection import MERGE_PATCH
from cpg_client.flavours import KINDS
from cpg_client.resources import Resource
from cpg_operator.deletion.client import MAX_REQUESTS_IN_FLIGHT

GROUPS_PER_PAGE = 500
"""A client that holds all groups of a large cluster at once needs gigabytes."""
MAX_SPELLED_ERRORS = 5
NOT_FOUND, CONFLICT = 404, 409
PERMANENT_STATUSES = frozenset({401, 403})
"""A request without the right to it is refused again."""

REQUEST_ERRORS = (pykube.exceptions.HTTPError, OSError, LookupError, ValueError, msgspec.DecodeError)
"""An error of ``requests`` is an OSError; pykube-ng raises the others for an answer that it cannot read."""


class _GroupMetadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str
    resource_version: str
    finalizers: tuple[str, ...] = ()


class _HeldGroup(msgspec.Struct, frozen=True):
    metadata: _GroupMetadata


class Round:
    """One round, and its result."""

    def __init__(self, client: pykube.HTTPClient) -> None:
        """Start without groups."""
        self.found = 0
        """The number of groups that had the finalizer."""
        self.released: set[str] = set()
        """The paths of the groups that do not have it any more."""
        self._client = client
        self._failed = 0
        self._errors: dict[str, str] = {}
        self._may_pass = False
        """Whether another round may succeed with something."""

    @property
    def is_clean(self) -> bool:
        """Whether there was nothing to do."""
        return not self.found and not self._errors

    @property
    def is_hopeless(self) -> bool:
        """Whether nothing but refusals is left, which the next round would get again."""
        return bool(self._errors) and not self._may_pass and self.found == self._failed

    @property
    def error(self) -> str:
        """What could not be done, or an empty string."""
        more = len(self._errors) - MAX_SPELLED_ERRORS
        errors = [f"{name}: {error}" for name, error in self._errors.items()][:MAX_SPELLED_ERRORS]
        return "; ".join((*errors, f"and {more} more") if more > 0 else errors)

    def record_error(self, name: str, error: Exception) -> None:
        """Record an error about a group, a list, or the server."""
        self._errors[name] = f"{type(error).__name__}: {error}"
        self._may_pass = self._may_pass or getattr(error, "code", None) not in PERMANENT_STATUSES

    def run(self, namespaces: Sequence[str | None]) -> None:
        """Release all groups of these namespaces, or of all."""
        with ThreadPoolExecutor(MAX_REQUESTS_IN_FLIGHT) as threads:
            for resource in self._served():
                for namespace in namespaces:
                    try:
                        for page in self._pages(resource, namespace):
                            self._take(resource, page, threads)
                    except REQUEST_ERRORS as error:
                        self.record_error(resource.path(namespace), error)

    def _served(self) -> Iterator[Resource]:
        """Yield the kinds of groups that are served."""
        for kinds in KINDS.values():
            for kind, resource in kinds.items():
                if kind is not Workload and self._is_served(resource):
                    yield resource

    def _is_served(self, resource: Resource) -> bool:
        answer = self._client.get(version=resource.api_version)
        if answer.status_code == NOT_FOUND:
            return False
        self._client.raise_for_status(answer)
        return any(one["name"] == resource.plural for one in decode(answer.content)["resources"])

    def _pages(self, resource: Resource, namespace: str | None) -> Iterator[ParsedList[_HeldGroup]]:
        """Yield all objects of a kind, page by page: a query of pykube-ng would request all at once."""
        token, more = "", True
        while more:
            url = f"{resource.plural}?{urlencode({'limit': GROUPS_PER_PAGE, 'continue': token})}"
            answer = self._client.get(version=resource.api_version, url=url, namespace=namespace)
            self._client.raise_for_status(answer)
            page = parse_list(answer.content, _HeldGroup)
            yield page
            token = page.continue_token
            more = bool(token)

    def _take(self, resource: Resource, page: ParsedList[_HeldGroup], threads: ThreadPoolExecutor) -> None:
        """Release the groups of one page."""
        for one in page.rejected:
            self.record_error(f"{resource.kind} {one.name}", ValueError(", ".join(map(str, one.problems))))
        held = [group.metadata for group in page.items if FINALIZER in group.metadata.finalizers]
        self.found += len(held)
        for meta, error in zip(held, threads.map(partial(self._release, resource), held), strict=True):
            if error is None:
                self.released.add(resource.path(meta.namespace, meta.name))
            elif getattr(error, "code", None) not in {NOT_FOUND, CONFLICT}:
                self._failed += 1
                self.record_error(f"{resource.kind} {meta.namespace}/{meta.name}", error)

    def _release(self, resource: Resource, meta: _GroupMetadata) -> Exception | None:
        """Remove the finalizer from this version of a group; the next round takes a newer one."""
        left = [name for name in meta.finalizers if name != FINALIZER]
        body = {"metadata": {"finalizers": left, "resourceVersion": meta.resource_version}}
        try:
            answer = self._client.patch(
                version=resource.api_version,
                url=f"{resource.plural}/{meta.name}",
                namespace=meta.namespace,
                headers={"Content-Type": MERGE_PATCH},
                data=msgspec.json.encode(body),
            )
            self._client.raise_for_status(answer)
        except Exception as error:  # noqa: BLE001  # an error of one group stops no other
            return error
        return None
