"""Resource requests as they are on the wire; ``cpg_api.quantity`` reads their values."""

from cpg_api.structs import ApiStruct

ResourceList = dict[str, str | int | float]


class ResourceRequirements(ApiStruct, frozen=True):
    """The requests and limits of a container or of a whole pod."""

    requests: ResourceList | None = None
    limits: ResourceList | None = None
