"""Resource requests as they stand on the wire; ``cpg_api.quantity`` gives them their exact value."""

from cpg_api.structs import ApiStruct

ResourceList = dict[str, str | int | float]


class ResourceRequirements(ApiStruct, frozen=True):
    """What a container or a whole pod asks for."""

    requests: ResourceList | None = None
    limits: ResourceList | None = None
