"""One round over all groups, which takes our finalizer off every one that has it.

Read is only what that takes: anybody who may write a group can nest the rest of it by the thousand, and the answer to a
patch is the whole group again. What goes wrong with one group, or with one list, stops no other; it is told in the end.
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
from cpg_operator.deletion.client import CONNECTIONS

PAGE = 500
"""Groups of one answer: a client that holds all groups of a large cluster at once needs gigabytes."""
MOST_NAMED = 5
"""Errors that are spelled out."""
GONE, CONFLICT = 404, 409
HOPELESS = frozenset({401, 403})
"""Statuses of a server that knows us, or does not, and will say the same again."""

TROUBLE = (pykube.exceptions.HTTPError, OSError, LookupError, ValueError, msgspec.DecodeError)
"""What requests raises is an OSError; pykube-ng trips over a refusal that does not say what it is."""


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str
    resource_version: str
    finalizers: tuple[str, ...] = ()


class _Group(msgspec.Struct, frozen=True):
    metadata: _Meta


class Round:
    """What one round has found, and what has become of it."""

    def __init__(self, client: pykube.HTTPClient) -> None:
        """Look at nothing yet."""
        self.found = 0
        """How many groups had the finalizer."""
        self.released: set[str] = set()
        """The paths of those that have it no more."""
        self._client = client
        self._failed = 0
        self._errors: dict[str, str] = {}
        self._may_pass = False
        """Whether another round may fare better with something."""

    @property
    def is_clean(self) -> bool:
        """Tell whether there was nothing to do."""
        return not self.found and not self._errors

    @property
    def is_hopeless(self) -> bool:
        """Tell whether nothing but refusals is left, which will be the same in the next round."""
        return bool(self._errors) and not self._may_pass and self.found == self._failed

    @property
    def trouble(self) -> str:
        """Say what could not be done, if anything."""
        more = len(self._errors) - MOST_NAMED
        told = [f"{name}: {error}" for name, error in self._errors.items()][:MOST_NAMED]
        return "; ".join((*told, f"and {more} more") if more > 0 else told)

    def note(self, name: str, error: Exception) -> None:
        """Keep what has gone wrong."""
        self._errors[name] = f"{type(error).__name__}: {error}"
        self._may_pass = self._may_pass or getattr(error, "code", None) not in HOPELESS

    def run(self, namespaces: Sequence[str | None]) -> None:
        """Go over all groups of these namespaces, or of all."""
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            for resource in self._served():
                for namespace in namespaces:
                    try:
                        for page in self._pages(resource, namespace):
                            self._take(resource, page, threads)
                    except TROUBLE as error:
                        self.note(resource.path(namespace), error)

    def _served(self) -> Iterator[Resource]:
        """Yield the kinds of groups that are served."""
        for kinds in KINDS.values():
            for kind, resource in kinds.items():
                if kind is not Workload and self._is_served(resource):
                    yield resource

    def _is_served(self, resource: Resource) -> bool:
        answer = self._client.get(version=resource.api_version)
        if answer.status_code == GONE:
            return False
        self._client.raise_for_status(answer)
        return any(one["name"] == resource.plural for one in decode(answer.content)["resources"])

    def _pages(self, resource: Resource, namespace: str | None) -> Iterator[ParsedList[_Group]]:
        """Yield all objects of a kind, page by page: pykube-ng's own queries ask for everything at once."""
        token, more = "", True
        while more:
            url = f"{resource.plural}?{urlencode({'limit': PAGE, 'continue': token})}"
            answer = self._client.get(version=resource.api_version, url=url, namespace=namespace)
            self._client.raise_for_status(answer)
            page = parse_list(answer.content, _Group)
            yield page
            token = page.continue_token
            more = bool(token)

    def _take(self, resource: Resource, page: ParsedList[_Group], threads: ThreadPoolExecutor) -> None:
        """Release what is on a page."""
        for one in page.rejected:
            self.note(f"{resource.kind} {one.name}", ValueError(", ".join(map(str, one.problems))))
        held = [group.metadata for group in page.items if FINALIZER in group.metadata.finalizers]
        self.found += len(held)
        for meta, error in zip(held, threads.map(partial(self._release, resource), held), strict=True):
            if error is None:
                self.released.add(resource.path(meta.namespace, meta.name))
            elif getattr(error, "code", None) not in {GONE, CONFLICT}:
                self._failed += 1
                self.note(f"{resource.kind} {meta.namespace}/{meta.name}", error)

    def _release(self, resource: Resource, meta: _Meta) -> Exception | None:
        """Take the finalizer off this very state of a group; one that has changed or gone is for the next round."""
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
        except Exception as error:  # noqa: BLE001  # whatever is wrong with one stops no other
            return error
        return None
