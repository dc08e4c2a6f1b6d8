"""The world of one night."""

from random import Random

from cpg_client.resources import NAMESPACES, NODES, PODS, PRIORITY_CLASSES, RESOURCE_CLAIMS
from cpg_simulation.apiserver.server import ApiServer
from cpg_simulation.nights import manifests
from cpg_simulation.nights.manifests import INNER, LEAVES, WORKLOADS
from cpg_simulation.nights.plan import Night
from cpg_simulation.virtual.coordinator import Coordinator
from cpg_simulation.world.claims import ClaimController
from cpg_simulation.world.cluster_client import ClusterClient
from cpg_simulation.world.drivers import DeviceDriver
from cpg_simulation.world.garbage import GarbageCollector, PodGarbageCollector
from cpg_simulation.world.kube_scheduler import KubeScheduler
from cpg_simulation.world.kubelets import Kubelets
from cpg_simulation.world.owners import Owners
from cpg_simulation.world.users import Users

SECONDS_BETWEEN_SYNCS = 1.0


class World:
    """Acts on the API server, whatever fails."""

    def __init__(self, night: Night, coordinator: Coordinator, server: ApiServer, random: Random) -> None:
        """Create what is there at the beginning."""
        self.client = ClusterClient(server)
        self.kubelets = Kubelets(coordinator, self.client, random)
        self._coordinator = coordinator
        self._create_cluster(night)
        server.on_write.append(self.kubelets.on_write)
        self.owners = owners = Owners(self.client, night.flavour)
        self._users = Users(night, coordinator, self.client, owners, random)
        leaves, inner, workloads = (kinds[night.flavour] for kinds in (LEAVES, INNER, WORKLOADS))
        self._syncs = [
            owners.sync,
            PodGarbageCollector(coordinator, self.client).sync,
            GarbageCollector(self.client, (workloads, inner), (leaves, inner)).sync,
            self.kubelets.sync,
        ]
        if night.competitor:
            competitor = KubeScheduler(coordinator, self.client, random)
            server.on_write.append(competitor.on_write)
            self._syncs.append(competitor.sync)
        if night.has_devices:
            self._add_devices(night, server)
        coordinator.after(SECONDS_BETWEEN_SYNCS, self._sync)

    def _create_cluster(self, night: Night) -> None:
        for found in manifests.priority_classes():
            self.client.create(PRIORITY_CLASSES, found)
        self.client.create(NAMESPACES, {"metadata": {"name": manifests.NAMESPACE}})
        for plan in night.nodes:
            self.client.create(NODES, manifests.node(plan))

    def _add_devices(self, night: Night, server: ApiServer) -> None:
        random = Random(f"{night.seed} claims")  # noqa: S311 - the same for the same seed
        for resource, found in manifests.device_objects():
            self.client.create(resource, found)
        driver, claims = (
            DeviceDriver(night.nodes, self.client),
            ClaimController(self._coordinator, self.client, random),
        )
        driver.sync()
        server.on_write.append(claims.on_write)
        garbage = GarbageCollector(self.client, (PODS,), (RESOURCE_CLAIMS,))
        self._syncs += [driver.sync, claims.sync, garbage.sync]

    def _sync(self) -> None:
        self._coordinator.after(SECONDS_BETWEEN_SYNCS, self._sync)
        if not self.client.is_down:
            for sync in self._syncs:
                sync()
