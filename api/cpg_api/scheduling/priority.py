"""The priority of groups and pods, from their own fields or from PriorityClasses."""

from collections.abc import Mapping

from msgspec import Struct

from cpg_api.core.priorityclass import PriorityClass


class PriorityClasses(Struct, frozen=True):
    """The priority classes of a cluster."""

    by_name: Mapping[str, PriorityClass]

    @property
    def default(self) -> PriorityClass | None:
        """Return the global default; of several, the one with the lowest value, as the API server does."""
        defaults = [found for found in self.by_name.values() if found.global_default]
        return min(defaults, key=lambda found: (found.value, found.metadata.name), default=None)

    def applicable(self, class_name: str, explicit: int | None) -> PriorityClass | None:
        """Return the class that applies: the named one, or the default where there is no explicit number either."""
        if class_name:
            return self.by_name.get(class_name)
        return self.default if explicit is None else None

    def resolve(self, class_name: str, explicit: int | None) -> int | None:
        """Return the priority to schedule by, or None where the class is not known.

        An explicit number wins: it was resolved before, and a changed or deleted class does not affect running pods.
        """
        if explicit is not None:
            return explicit
        found = self.applicable(class_name, explicit)
        if found is not None:
            return found.value
        return None if class_name else 0
