"""What a person may choose, from the command line and from a file, with a clear word about every mistake."""

import math
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from cpg_client.flavours import Api
from cpg_client.process import LeaderElectionSettings
from cpg_client.settings import address_problems, common_problems, override, parse_address, read_settings

SHORTEST_VALIDITY = 10.0
"""Seconds of a certificate of our own: there must be time to serve the next one before it expires."""


class Webhook(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How the API server may ask about groups and Workloads before it takes them."""

    listen: str = ""
    """Where questions are answered, over TLS, as host:port; empty for nowhere."""
    certificates: str = ""
    """The folder with `tls.crt` and `tls.key`, which are read anew whenever they change."""
    secret: str = ""
    """The Secret, beside the lease, in which the leader keeps a certificate of its own making; empty for none."""
    configuration: str = ""
    """The ValidatingWebhookConfiguration that is told to trust it."""
    host: str = ""
    """The name by which the API server asks, which is the certificate's."""
    validity: float = 90 * 24 * 3600.0
    """For how many seconds a certificate is good; it is replaced after two thirds of them."""

    def address(self) -> tuple[str, int] | None:
        """Return where to listen, or None."""
        return parse_address(self.listen)


class Settings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Everything that can be set in the file; the command line wins over it. Times are in seconds."""

    api: Api = "auto"
    """Which groups are looked after: ours, the built-in ones of Kubernetes, or whatever the cluster serves."""
    namespaces: tuple[str, ...] = ()
    """The namespaces to look after; none for all of them."""
    leader_elect: bool = True
    """Whether to work only while holding the lease."""
    lease_namespace: str = "kube-system"
    """Where the lease is."""
    lease_name: str = "cpg-operator"
    """What it is called."""
    leader_election: LeaderElectionSettings = field(default_factory=LeaderElectionSettings)
    listen: str = "127.0.0.1:10271"
    """Where probes and metrics are served, as host:port; empty for nowhere."""
    writes_in_flight: int = 16
    """How many requests that change something are under way at once."""
    quiet: float = 0.25
    """For how long a tree has to be quiet before it is looked at."""
    longest_delay: float = 1.0
    """After which a tree is looked at though it is not quiet."""
    sweep_period: float = 300.0
    """Between two comparisons of what is known with what is there."""
    partial_after: float = 600.0
    """For how long half a gang may hold nodes where its user wrote ``default``."""
    webhook: Webhook = field(default_factory=Webhook)

    def address(self) -> tuple[str, int] | None:
        """Return where to listen, or None."""
        return parse_address(self.listen)


def load(path: Path | None) -> Settings:
    """Read a settings file; without one, everything is as by default."""
    return read_settings(path, Settings, _mistakes)


def merged(settings: Settings, **given: object) -> Settings:
    """Return the settings with what the command line gives in their place."""
    return override(settings, _mistakes, **given)


def _mistakes(settings: Settings) -> Iterator[str]:
    """Yield what types alone do not say."""
    yield from common_problems(settings)
    yield from address_problems("webhook.listen", settings.webhook.listen)
    if settings.webhook.listen and not settings.webhook.certificates:
        yield "webhook.certificates: must be a folder, since an API server asks over TLS alone"
    if settings.webhook.secret and not (settings.webhook.configuration and settings.webhook.host):
        yield "webhook.secret: takes webhook.configuration and webhook.host as well"
    if not SHORTEST_VALIDITY <= settings.webhook.validity < math.inf:
        yield f"webhook.validity: must be at least {SHORTEST_VALIDITY:g} seconds"
    if settings.writes_in_flight < 1:
        yield "writesInFlight: must be at least 1"
    for name, number in (("quiet", settings.quiet), ("partialAfter", settings.partial_after)):
        if not 0 <= number < math.inf:
            yield f"{name}: must be a number of seconds, not negative"
    if not settings.quiet <= settings.longest_delay < math.inf:
        yield "longestDelay: must be a number of seconds, not below quiet"
    if not 1 <= settings.sweep_period < math.inf:
        yield "sweepPeriod: must be at least 1 second"
