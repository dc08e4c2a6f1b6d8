"""The command ``cpg-operator``."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import get_args

from cpg_client import garbage
from cpg_client.endpoint import Endpoint
from cpg_client.errors import ClientError
from cpg_client.flavours import Api
from cpg_client.incluster import find_endpoint
from cpg_client.lean_imports import import_without
from cpg_client.logs import configure_logging, report_fatal
from cpg_client.settings import SettingsError
from cpg_client.shared_session import current_token

import_without("cpg_operator.app", "kubernetes")  # Kopf looks for it in all its forms

from cpg_operator import app
from cpg_operator.deletion.client import open_client
from cpg_operator.deletion.release_finalizers import LeaseName, NotReleasedError, release_finalizers
from cpg_operator.settings import Settings, load, merged

RELEASE = "release-finalizers"
LOG_LEVELS = ("debug", "info", "warning", "error")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the operator; return the exit code."""
    given = _parser().parse_args(arguments)
    configure_logging(given.log_level)
    garbage.tune()
    try:
        settings = merged(
            load(given.config),
            api=given.api,
            scheduler_name=given.scheduler_name,
            namespaces=tuple(given.namespace) if given.namespace else None,
            leader_elect=given.leader_elect,
            listen=given.listen,
            **_lease_settings(given.lease),
        )
        endpoint = find_endpoint(given.kubeconfig)
        if given.command == RELEASE:
            _release(endpoint, settings)
        else:
            asyncio.run(app.run(endpoint, settings))
    except (SettingsError, ClientError, NotReleasedError) as problem:
        sys.stderr.write(f"cpg-operator: {problem}\n")
        return 1
    except Exception as error:  # noqa: BLE001  # the log has to have it, whatever it is
        return report_fatal("cpg-operator", error)
    return 0


def _lease_settings(given: str | None) -> dict[str, str]:
    if given is None:
        return {}
    namespace, _, name = given.partition("/")
    return {"lease_namespace": namespace, "lease_name": name}


def _release(endpoint: Endpoint, settings: Settings) -> None:
    with open_client(endpoint, asyncio.run(current_token(endpoint))) as client:
        lease = LeaseName(settings.lease_namespace, settings.lease_name)
        release_finalizers(client, settings.namespaces, lease=lease)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cpg-operator", description="Manages trees of gangs: validity, priority, status, health, life cycle."
    )
    parser.add_argument(
        "command",
        nargs="?",
        choices=("run", RELEASE),
        default="run",
        help=f"{RELEASE}: remove our finalizer from every group, after the operator has been stopped for good",
    )
    parser.add_argument(
        "--kubeconfig", type=Path, help="the cluster; default: as for kubectl, or the pod's own account"
    )
    parser.add_argument("--config", type=Path, help="a YAML file with settings; the options here override it")
    parser.add_argument("--api", choices=get_args(Api), help="which groups to manage: ours, the built-in ones, or both")
    parser.add_argument("--scheduler-name", help="the schedulerName of the pods of our scheduler (cpg-scheduler)")
    parser.add_argument("--namespace", action="append", help="a namespace to manage; may be repeated; default: all")
    parser.add_argument("--leader-elect", action=argparse.BooleanOptionalAction, help="work only while holding a lease")
    parser.add_argument("--lease", help="NAMESPACE/NAME of the lease (kube-system/cpg-operator)")
    parser.add_argument("--listen", help="host:port of probes and metrics; empty for none")
    parser.add_argument("--version", action="version", version=f"cpg-operator {version('kube-cpg')}")
    parser.add_argument(
        "--log-level", choices=LOG_LEVELS, default="info", help="the lowest level that is logged (info)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
