"""Namespaces: their labels, which pod affinity may select on."""

from cpg_api.meta import ObjectMeta
from cpg_api.structs import ApiStruct


class Namespace(ApiStruct, frozen=True):
    """A namespace."""

    metadata: ObjectMeta = ObjectMeta()
