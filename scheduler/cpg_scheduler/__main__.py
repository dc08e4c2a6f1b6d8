"""The command ``cpg-scheduler``."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import msgspec

from cpg_client import garbage
from cpg_client.errors import ClientError
from cpg_client.flavours import Api
from cpg_client.incluster import find_endpoint
from cpg_client.logs import configure_logging, report_fatal
from cpg_client.settings import SettingsError
from cpg_scheduler import app
from cpg_scheduler.debug.replay import ReplayError, replay
from cpg_scheduler.settings import load, merged

LOG_LEVELS = ("debug", "info", "warning", "error")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scheduler, or replay a dump; return the exit code."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.root and not given.replay:
        parser.error("--root goes with --replay")
    configure_logging(given.log_level)
    garbage.tune()
    try:
        if given.replay:
            return _replay(given.replay, given.root)
        settings = merged(
            load(given.config),
            scheduler_name=given.scheduler_name,
            api=given.api,
            namespaces=tuple(given.namespace) if given.namespace else None,
            leader_elect=given.leader_elect,
            listen=given.listen,
            debug_port=given.debug_port,
        )
        asyncio.run(app.run(find_endpoint(given.kubeconfig), settings))
    except (SettingsError, ClientError, ReplayError) as problem:
        sys.stderr.write(f"cpg-scheduler: {problem}\n")
        return 1
    except Exception as error:  # noqa: BLE001 - the process ends
        return report_fatal("cpg-scheduler", error)
    return 0


def _replay(file: Path, root: str) -> int:
    """Print the explanation of each pending unit of a dump, one line of JSON each."""
    number = 0
    for number, explanation in enumerate(replay(file, root), 1):  # noqa: B007 - counted
        sys.stdout.write(msgspec.json.encode(explanation).decode() + "\n")
    if not number:
        sys.stderr.write("cpg-scheduler: no pending units in this dump\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cpg-scheduler", description="Schedules trees of gangs, each as a whole.")
    parser.add_argument("--kubeconfig", type=Path, help="the cluster; by default as kubectl, or the pod's own account")
    parser.add_argument("--config", type=Path, help="a YAML file with settings; options override it")
    parser.add_argument("--scheduler-name", help="the schedulerName of the pods to schedule (cpg-scheduler)")
    parser.add_argument("--api", choices=get_args(Api), help="which groups to read: ours, the built-in ones, or both")
    parser.add_argument("--namespace", action="append", help="a namespace to schedule; may be repeated; default: all")
    parser.add_argument("--leader-elect", action=argparse.BooleanOptionalAction, help="work only while holding a lease")
    parser.add_argument("--listen", help="host:port of probes and metrics; empty for none")
    parser.add_argument("--debug-port", type=int, help="port of explanations and dumps on 127.0.0.1; 0 for none")
    parser.add_argument(
        "--replay",
        type=Path,
        metavar="FILE",
        help="explain the pending units of a dump of /debug/dump, without a cluster, and exit",
    )
    parser.add_argument(
        "--root", default="", metavar="NAMESPACE/NAME", help="with --replay: only the tree of this group or pod"
    )
    parser.add_argument("--version", action="version", version=f"cpg-scheduler {version('kube-cpg')}")
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="info", help="the lowest logged level (info)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
