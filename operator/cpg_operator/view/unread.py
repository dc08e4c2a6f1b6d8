"""Namespaces that have not been read completely: their trees would be judged on partial data."""

from collections.abc import Iterable


class UnreadNamespaces:
    """The chosen namespaces, each with the parts of it that are still to be read; none where all are managed."""

    def __init__(self, namespaces: Iterable[str], parts: Iterable[object]) -> None:
        """Start with nothing read."""
        every = set(parts)
        self._missing: dict[str, set[object]] = {namespace: set(every) for namespace in namespaces}

    def __contains__(self, namespace: str) -> bool:
        return namespace in self._missing

    def mark_read(self, namespace: str | None, part: object) -> bool:
        """Note that one part has been read; return whether this completes the namespace."""
        missing = self._missing.get(namespace or "")
        if missing is None:
            return False
        missing.discard(part)
        if missing:
            return False
        del self._missing[namespace or ""]
        return True
