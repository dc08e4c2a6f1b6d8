"""The kinds of dynamic resource allocation that a server has: all from 1.34 on, unless they are switched off."""

from cpg_api.core.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from cpg_client import resources
from cpg_client.connection import Connection
from cpg_client.discovery import served_resources, server_version
from cpg_client.resources import Resource

RELEASE_WITH_EXTENDED_RESOURCES = (1, 36)
"""Earlier releases have the feature switched off, and drop what says which devices a pod has."""

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


async def backs_extended_resources(connection: Connection) -> bool:
    """Return whether devices stand for extended resources, unless the feature is switched off there."""
    found = await server_version(connection)
    numbers = [int("".join(filter(str.isdecimal, part)) or 0) for part in (found.major, found.minor)]
    return tuple(numbers) >= RELEASE_WITH_EXTENDED_RESOURCES
