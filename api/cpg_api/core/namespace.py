"""Namespaces. Pod affinity may select them by their labels."""

from cpg_api.meta import ObjectMeta
from cpg_api.structs import ApiStruct


class Namespace(ApiStruct, frozen=True):
    """A namespace."""

    metadata: ObjectMeta = ObjectMeta()
