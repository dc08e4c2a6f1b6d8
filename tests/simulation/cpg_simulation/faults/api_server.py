"""The faults of the API server and of etcd."""

from collections.abc import Callable

from cpg_simulation.apiserver.server import ApiServer
from cpg_simulation.apiserver.storage import State
from cpg_simulation.apiserver.values import Answer, Request
from cpg_simulation.faults.requests import is_hit, refusal
from cpg_simulation.network import Network
from cpg_simulation.nights.plan import Fault
from cpg_simulation.virtual.coordinator import Coordinator
from cpg_simulation.world.cluster_client import ClusterClient

SECONDS_BETWEEN_SAVES = 1.0


class ServerFaults:
    """Restarts the server, compacts and restores its storage, and lets admission refuse."""

    def __init__(
        self,
        coordinator: Coordinator,
        server: ApiServer,
        network: Network,
        client: ClusterClient,
        on_restored: Callable[[], None],
    ) -> None:
        """Act on these; call ``on_restored`` when etcd has been restored."""
        self._on_restored = on_restored
        self._active: list[str] = []
        self._coordinator = coordinator
        self._server = server
        self._network = network
        self._client = client
        self._saved: list[tuple[float, State]] = []

    def save(self) -> None:
        """Save the state now and then, for faults that restore it."""
        self._saved.append((self._coordinator.now, self._server.save()))
        self._coordinator.after(SECONDS_BETWEEN_SAVES, self.save)

    def begin(self, fault: Fault) -> None:
        """Let a fault begin."""
        self._active.append(fault.kind)
        match fault.kind:
            case "restart":
                self._take_down()
            case "restore":
                self._restore(fault)
            case "compact":
                self._server.compact(self._server.revision)
            case _:
                self._server.refuse = _refusal_of(fault)

    def end(self, fault: Fault) -> None:
        """Let a fault end, unless another one does the same."""
        self._active.remove(fault.kind)
        self._network.is_down = self._client.is_down = not {"restart", "restore"}.isdisjoint(self._active)
        if "refuse-admission" not in self._active:
            self._server.refuse = None

    def _take_down(self) -> None:
        self._network.is_down = self._client.is_down = True
        self._server.restart()
        self._network.reset_all()

    def _restore(self, fault: Fault) -> None:
        self._take_down()
        before = self._coordinator.now - fault.amount
        candidates = [state for at, state in self._saved if at <= before] or [self._saved[0][1]]
        self._server.restore(candidates[-1])
        self._on_restored()


def _refusal_of(fault: Fault) -> Callable[..., Answer | None]:
    def refuse(request: Request, *_: object) -> Answer | None:
        is_ours = request.user.startswith(("scheduler", "operator"))
        is_refused = is_ours and is_hit(request, fault.requests)
        return refusal(403, "Forbidden", "a webhook denied it") if is_refused else None

    return refuse
