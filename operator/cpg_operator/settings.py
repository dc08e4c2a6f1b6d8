"""Everything that can be set, on the command line or in a file; each mistake is reported by the name of its setting."""

import math
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from cpg_api.integrations.custom import CustomKind
from cpg_api.integrations.registry import DEFAULT_INTEGRATIONS, Integration
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_client.flavours import Api
from cpg_client.process import LeaderElectionSettings
from cpg_client.settings import address_problems, common_problems, override, parse_address, read_settings

MIN_VALIDITY_SECONDS = 10.0
"""Of a certificate that we make: there must be time to serve the next one before it expires."""


class Webhook(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How the API server asks about groups and Workloads before it accepts them."""

    listen: str = ""
    """Where the webhook is served, over TLS, as host:port; empty for nowhere."""
    certificates: str = ""
    """The folder with `tls.crt` and `tls.key`, which are loaded again whenever they change."""
    secret: str = ""
    """The Secret, in the lease's namespace, in which the leader keeps a certificate that it makes; empty for none."""
    configuration: str = ""
    """The ValidatingWebhookConfiguration; its CA bundle is kept up to date."""
    host: str = ""
    """The name under which the API server reaches the webhook, for which the certificate is made."""
    validity: float = 90 * 24 * 3600.0
    """How long a certificate is valid, in seconds; it is replaced after two thirds of that time."""

    def address(self) -> tuple[str, int] | None:
        """Return where to listen, or None."""
        return parse_address(self.listen)


class Settings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Everything that can be set in the file; the command line overrides it. Times are in seconds."""

    api: Api = "auto"
    """Which groups are managed: ours, the built-in ones of Kubernetes, or all that the cluster serves."""
    scheduler_name: str = SCHEDULER_NAME
    """The name of our scheduler, as it has it; trees of another one get no condition about scheduling."""
    other_scheduler_names: tuple[str, ...] = ()
    """The names of further kube-cpg schedulers that this operator serves: their trees are ours as well."""
    namespaces: tuple[str, ...] = ()
    """The namespaces to manage; none for all of them."""
    leader_elect: bool = True
    """Whether to work only while holding the lease."""
    lease_namespace: str = "kube-system"
    """The namespace of the lease."""
    lease_name: str = "cpg-operator"
    """The name of the lease."""
    leader_election: LeaderElectionSettings = field(default_factory=LeaderElectionSettings)
    listen: str = "127.0.0.1:10271"
    """Where probes and metrics are served, as host:port; empty for nowhere."""
    writes_in_flight: int = 16
    """How many writes are in flight at once."""
    quiet: float = 0.25
    """How long a tree has to be quiet before it is reconciled."""
    longest_delay: float = 1.0
    """After this time a tree is reconciled although it is not quiet."""
    sweep_period: float = 300.0
    """The time between two comparisons of the view with the API server."""
    partial_after: float = 600.0
    """How long a partial tree may hold nodes where its annotation says `default`."""
    integrations: tuple[Integration, ...] = DEFAULT_INTEGRATIONS
    """The kinds of owners whose pods get groups without naming any, the same ones in both processes."""
    custom_integrations: tuple[CustomKind, ...] = ()
    """Further kinds of owners, the same ones in both processes."""
    webhook: Webhook = field(default_factory=Webhook)

    def address(self) -> tuple[str, int] | None:
        """Return where to listen, or None."""
        return parse_address(self.listen)

    def scheduler_names(self) -> frozenset[str]:
        """Return the names of all schedulers with trees of ours."""
        return frozenset({self.scheduler_name, *self.other_scheduler_names})


def load(path: Path | None) -> Settings:
    """Read a settings file; without one, return the defaults."""
    return read_settings(path, Settings, _problems)


def merged(settings: Settings, **given: object) -> Settings:
    """Return the settings with the values of the command line in their place."""
    return override(settings, _problems, **given)


def _problems(settings: Settings) -> Iterator[str]:
    """Yield the problems that types alone do not exclude."""
    yield from common_problems(settings)
    if "" in settings.scheduler_names():
        yield "schedulerName, otherSchedulerNames: no name may be empty"
    yield from address_problems("webhook.listen", settings.webhook.listen)
    if settings.webhook.listen and not settings.webhook.certificates:
        yield "webhook.certificates: must be a folder, since an API server asks over TLS alone"
    if settings.webhook.secret and not (settings.webhook.configuration and settings.webhook.host):
        yield "webhook.secret: takes webhook.configuration and webhook.host as well"
    if not MIN_VALIDITY_SECONDS <= settings.webhook.validity < math.inf:
        yield f"webhook.validity: must be at least {MIN_VALIDITY_SECONDS:g} seconds"
    if settings.writes_in_flight < 1:
        yield "writesInFlight: must be at least 1"
    for name, number in (("quiet", settings.quiet), ("partialAfter", settings.partial_after)):
        if not 0 <= number < math.inf:
            yield f"{name}: must be a number of seconds, not negative"
    if not settings.quiet <= settings.longest_delay < math.inf:
        yield "longestDelay: must be a number of seconds, not below quiet"
    if not 1 <= settings.sweep_period < math.inf:
        yield "sweepPeriod: must be at least 1 second"
