"""The command `cpg-lab`: clusters that outlive the command, and the programs that they are made of."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from cpg_lab import building, deployment_host, labs, node_creation, shell_environment
from cpg_lab.errors import LabError
from cpg_lab.labs import DEFAULT_NAME, Lab, LabReport
from cpg_lab.nodes import NodePool
from cpg_lab.progress import Display
from cpg_lab.specs import COMPONENTS, NEWEST, WORKLOADS, ClusterSpec
from cpg_lab.versions import BY_NAME, PROGRAMS
from cpg_lab.versions import COMPONENTS as VERSIONS

_INTERRUPTED = 130
_DEFAULTS = ("controller-manager", "kwok")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    given = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = given.run
    try:
        return run(given)
    except LabError as problem:
        print(f"cpg-lab: {problem}", *getattr(problem, "__notes__", ()), sep="\n", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ncpg-lab: interrupted", file=sys.stderr)
        return _INTERRUPTED


def build(given: argparse.Namespace) -> int:
    """Build programs, and print where they are."""
    names = given.programs or [each.name for each in PROGRAMS if given.all or not each.on_request]
    for name, path in building.ensure(names).items():
        print(f"{name:<24} {path}")
    return 0


def up(given: argparse.Namespace) -> int:
    """Start a cluster, unless it runs already."""
    lab = Lab(given.name)
    spec = ClusterSpec(
        kubernetes=given.kubernetes,
        gates=given.gates,
        further_gates=tuple(given.feature_gates),
        components=tuple(given.components),
        workloads=tuple(given.workloads),
        nodes=tuple(NodePool.parse(text) for text in given.nodes),
        fsync=given.fsync,
        node_lifecycle=given.node_lifecycle,
    )
    started = lab.up(spec, Display())
    print(f"{lab.name} {'runs' if started else 'runs already'}: {lab.access().url}")
    print(f"export KUBECONFIG={lab.access().kubeconfig}")
    return 0


def down(given: argparse.Namespace) -> int:
    """Stop a cluster, or all of them."""
    for lab in labs.known() if given.all else [Lab(given.name)]:
        print(f"{lab.name} {'is down' if lab.down() else 'was down already'}")
    return 0


def status(given: argparse.Namespace) -> int:
    """Print the state of a cluster, or of all of them; fail unless all components run."""
    chosen = [Lab(given.name)] if given.name else labs.known()
    reports = [lab.report() for lab in chosen]
    for lab, report in zip(chosen, reports, strict=True):
        print(_report_text(lab, report))
    if not reports:
        print("no lab runs")
    return 0 if reports and all(report.is_healthy for report in reports) else 1


def kubeconfig(given: argparse.Namespace) -> int:
    """Print the path of a cluster's kubeconfig."""
    print(Lab(given.name).access().kubeconfig)
    return 0


def kubectl(given: argparse.Namespace) -> int:
    """Run the lab's kubectl in place of this process, with its terminal, signals and exit code."""
    access = Lab(given.name).access()
    rest = given.arguments[1:] if given.arguments[:1] == ["--"] else given.arguments
    sys.stdout.flush()
    os.execv(access.kubectl_path, ["kubectl", f"--kubeconfig={access.kubeconfig}", *rest])  # noqa: S606


def nodes(given: argparse.Namespace) -> int:
    """Add nodes to a cluster."""
    pools = [NodePool.parse(text) for text in given.descriptions]
    print(f"made {node_creation.create_nodes(Lab(given.name).access().kubeconfig, pools)} nodes")
    return 0


def env(given: argparse.Namespace) -> int:
    """Print shell commands that set KUBECONFIG and PATH for a cluster: eval "$(cpg-lab env)"."""
    print(shell_environment.exports(Lab(given.name)), end="")
    return 0


def host(given: argparse.Namespace) -> int:
    """Run the pods of a namespace's Deployments as processes that end with the cluster."""
    for name, urls in deployment_host.start_host(Lab(given.name), given.namespace).items():
        print(f"{name:<24} {' '.join(urls)}")
    return 0


def _report_text(lab: Lab, report: LabReport) -> str:
    """Return a report as text."""
    what = f"Kubernetes {report.spec.kubernetes}, {report.spec.gates} gates" if report.spec else ""
    lines = [f"{report.name}: {report.phase}  {what}  {report.url}".rstrip()]
    for name, pid, alive in report.components:
        lines.append(f"  {name:<20} {f'runs ({pid})' if alive else f'DEAD; see {lab.files.log(name)}'}")
    return "\n".join([*lines, *([f"  {report.error}"] if report.error else [])])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cpg-lab", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        added = commands.add_parser(run.__name__, help=run.__doc__, description=run.__doc__)
        added.set_defaults(run=run)
        return added

    building_some = command(build)
    building_some.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"of {', '.join(BY_NAME)}")
    building_some.add_argument("--all", action="store_true", help="also those that only some clusters need")
    _add_up(command(up))
    stopping = command(down)
    _add_name(stopping)
    stopping.add_argument("--all", action="store_true", help="every lab of this repository")
    command(status).add_argument("--name", help="one lab only")
    _add_name(command(kubeconfig))
    _add_name(command(env))
    passing_on = command(kubectl)
    _add_name(passing_on)
    passing_on.add_argument("arguments", nargs=argparse.REMAINDER, metavar="-- ARGUMENT...")
    adding = command(nodes)
    _add_name(adding)
    adding.add_argument("descriptions", nargs="+", metavar="DESCRIPTION", help=_NODES_HELP)
    hosted = command(host)
    _add_name(hosted)
    hosted.add_argument("--namespace", default="kube-cpg", help="where they are (default: kube-cpg)")
    return parser


_NODES_HELP = 'such as "2 blocks x 2 racks x 4 nodes, cpu=4, memory=16Gi"; may be given again'


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", default=DEFAULT_NAME, help=f"which lab (default: {DEFAULT_NAME})")


def _parts(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _add_up(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument("--kubernetes", default=NEWEST, choices=VERSIONS, help=f"version (default: {NEWEST})")
    parser.add_argument("--gates", default="default", choices=("default", "native"), help="feature gates")
    parser.add_argument(
        "--feature-gates",
        type=_parts,
        default=(),
        metavar="LIST",
        help="further ones, such as DRAWorkloadResourceClaims",
    )
    parser.add_argument(
        "--with",
        dest="components",
        type=_parts,
        default=_DEFAULTS,
        metavar="LIST",
        help=f"components besides etcd and the API server, of {', '.join(COMPONENTS)} (default: {','.join(_DEFAULTS)})",
    )
    parser.add_argument(
        "--workloads", type=_parts, default=(), metavar="LIST", help=f"workload controllers, of {', '.join(WORKLOADS)}"
    )
    parser.add_argument("--nodes", action="append", default=[], metavar="DESCRIPTION", help=_NODES_HELP)
    parser.add_argument("--fsync", action="store_true", help="let etcd wait for the disk")
    parser.add_argument("--node-lifecycle", action="store_true", help="let nodes send leases; taint those that stop")


if __name__ == "__main__":
    sys.exit(main())
