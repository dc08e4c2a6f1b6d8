"""``wait``: until a tree is placed, healthy or gone."""

import re
import time
from collections.abc import Iterator

import click
import msgspec

from cpg_cli.analysis.standing import health_problem, is_placed, members_left, reason_of
from cpg_cli.cluster.api_server import ApiServer
from cpg_cli.cluster.live_cache import LiveCache
from cpg_cli.cluster.target_names import TARGET
from cpg_cli.cluster.targets import UnknownTargetError, unit_of
from cpg_cli.failures import CommandError, ExitCode
from cpg_cli.options import ClusterOptions, OutputOptions, cluster_options, output_options
from cpg_cli.rendering.documents import print_line
from cpg_cli.rendering.tables import warn_of_unread
from cpg_scheduler.keys import UnitKey

EXAMPLES = """\b
Examples:
  kubectl cpg wait train --for placed                  until the minimum of the tree has nodes
  kubectl cpg wait jobset/train --for healthy --timeout 1h
  kubectl cpg wait train --for gone                    until groups and pods are deleted
"""
PLACED, HEALTHY, GONE = "placed", "healthy", "gone"
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
POLL_SECONDS = 5.0
FIRST_STATE_SECONDS = 60.0
"""Beyond the time limit, for the first lists."""


class Duration(click.ParamType[float]):
    """A time such as ``90s``, ``10m`` or ``1h30m``; a number alone is seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds."""
        if isinstance(value, float):
            return value
        parts = re.findall(r"([0-9.]+)([smh])", f"{value}s" if str(value)[-1:].isdigit() else str(value))
        try:
            seconds = [float(number) * SECONDS[unit] for number, unit in parts]
        except ValueError:
            seconds = []
        if not seconds or "".join(map("".join, parts)).rstrip("s") != str(value).rstrip("s"):
            self.fail(f"{value!r} is no time such as 90s, 10m or 1h", param, ctx)
        return sum(seconds)


class WaitState(msgspec.Struct, frozen=True):
    """Whether what is waited for has come, and if not why."""

    reached: bool
    reason: str


@click.command(epilog=EXAMPLES)
@click.argument("target", type=TARGET)
@click.option(
    "--for", "goal", type=click.Choice([PLACED, HEALTHY, GONE]), default=PLACED, show_default=True, help="Until when."
)
@click.option("--timeout", type=Duration(), default="10m", show_default=True, help="How long to wait.")
@cluster_options
@output_options
def command(cluster: ClusterOptions, target: str, goal: str, timeout: float, how: OutputOptions) -> None:
    """Wait until TARGET is placed, healthy or gone; print each change of the reason once.

    TARGET may be a group, a pod or the owner of a tree, and need not exist yet. The exit code is 0 when it is as
    wanted, and 1 when the time is up.
    """
    server = ApiServer(cluster)
    last = ""
    for state in _states(server, target, goal, timeout, how):
        last = state.reason
        if state.reached or how.output in {"json", "yaml"}:
            print_line(how, state, f"{target} {state.reason}")
        else:
            print_line(how, state, f"{target} is not {goal}: {state.reason}")
        if state.reached:
            return
    message = f"{target} is not {goal} after {timeout:g} s: {last or 'the API server has not answered'}"
    hint = f"see `kubectl cpg explain {target} -n {server.namespace}`"
    raise CommandError(message, code=ExitCode.NEGATIVE, hint=hint)


def _states(server: ApiServer, target: str, goal: str, timeout: float, how: OutputOptions) -> Iterator[WaitState]:
    """Yield each state that differs from the one before, until the time is up; the first one is always awaited."""
    deadline = time.monotonic() + timeout
    live = LiveCache(server, server.namespace)
    last, unit, is_warned = None, None, False
    while (left := deadline - time.monotonic()) > 0 or (last is None and left > -FIRST_STATE_SECONDS):
        live.refresh(min(max(left, 0.1), POLL_SECONDS))
        if not live.is_complete:
            continue
        if live.unread and not is_warned:
            warn_of_unread(how, live.unread, "changes of them are not seen")
            is_warned = True
        try:
            unit = unit_of(live.cache, server.namespace, target)
            state = _state(live, unit, goal)
        except UnknownTargetError:
            unit = unit or _unit_of_pods(live, target)
            state = _state_without_target(live, unit, goal)
        if state != last:
            yield state
        last = state


def _state(live: LiveCache, unit: UnitKey, goal: str) -> WaitState:
    cache = live.cache
    if goal == GONE:
        return WaitState(reached=False, reason=members_left(cache, unit) or "it exists")
    placed = is_placed(cache, unit)
    if not placed or goal == PLACED:
        return WaitState(placed, "is placed" if placed else reason_of(cache, unit) or "no attempt yet")
    problem = health_problem(cache, unit)
    return WaitState(problem is None, problem or "is healthy")


def _unit_of_pods(live: LiveCache, target: str) -> UnitKey | None:
    """Return the unit of pods that name the target as their group, which may be deleted before them."""
    units = {live.cache.unit_of(pod) for pod in live.cache.pods.values()}
    return next((unit for unit in units if unit.key.name == target.rpartition("/")[2]), None)


def _state_without_target(live: LiveCache, unit: UnitKey | None, goal: str) -> WaitState:
    """Return the state where nothing has the name of the target; of its tree something may be left."""
    if goal != GONE:
        return WaitState(reached=False, reason="it does not exist")
    left = members_left(live.cache, unit) if unit is not None else ""
    return WaitState(not left, left or "is gone")
