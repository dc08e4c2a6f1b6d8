"""The kinds of dynamic resource allocation that a server has: all from 1.34 on, unless they are switched off."""

from cpg_api.core.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from cpg_client import resources
from cpg_client.connection import Connection
from cpg_client.discovery import served_resources
from cpg_client.resources import Resource

DeviceKinds = dict[type, Resource]
"""The resource of each kind that is served."""

REQUIRED: DeviceKinds = {
    DeviceClass: resources.DEVICE_CLASSES,
    ResourceSlice: resources.RESOURCE_SLICES,
    ResourceClaim: resources.RESOURCE_CLAIMS,
}


async def served_device_kinds(connection: Connection) -> DeviceKinds:
    """Return the kinds that are served; nothing where one of those is missing without which no device is allocated."""
    served = await served_resources(connection, resources.RESOURCE_CLAIMS.group, resources.RESOURCE_CLAIMS.version)
    if not served.issuperset(REQUIRED.values()):
        return {}
    rules = resources.DEVICE_TAINT_RULES
    if rules not in served:
        rules = resources.DEVICE_TAINT_RULES_BETA
        served = await served_resources(connection, rules.group, rules.version)
    return REQUIRED | ({DeviceTaintRule: rules} if rules in served else {})
