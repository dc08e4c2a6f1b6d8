"""What nodes lack of devices, as one sentence of bounded length."""

from collections.abc import Iterator

from cpg_api.problems import truncate
from cpg_api.scheduling.attempts import MAX_SENTENCE
from cpg_engine.verdicts import ClaimElsewhere, DeviceFinding, DeviceSupply, GroupReport
from cpg_scheduler.status.messages.wording import counted

MAX_QUOTED = 80
"""Characters of a selector, or of what is wrong with one."""


def devices_of(report: GroupReport) -> DeviceFinding | None:
    """Return what is missing of devices for a group: in the closest domain, if there are domains."""
    return report.candidates[0].devices if report.candidates else report.devices


def devices_sentence(report: GroupReport) -> str:
    """Return what is missing of devices for a group, and in which domain; empty where nothing is."""
    found = devices_of(report)
    where = report.candidates[0].domain.value if report.candidates else ""
    match found:
        case ClaimElsewhere():
            return truncate(_elsewhere(found, where), MAX_SENTENCE)
        case DeviceSupply():
            return truncate(_supply(found, f" in {where}" if where else ""), MAX_SENTENCE)
        case _:
            return ""


def _elsewhere(found: ClaimElsewhere, where: str) -> str:
    outside = f", outside {where}" if where else ""
    if not found.node:
        return f"resourceclaim {found.claim} has devices that no node can use"
    if found.nodes == 1:
        return f"resourceclaim {found.claim} is allocated on node {found.node}{outside}"
    such = f"{counted(found.nodes, 'node')} such as {found.node}"
    return f"resourceclaim {found.claim} has devices that {such} can use{outside}"


def _supply(found: DeviceSupply, where: str) -> str:
    where += f", of {counted(found.counted, 'node')} that were counted" if found.counted else ""
    if not found.total:
        problem = f" ({_quoted(found.problem)})" if found.problem else ""
        return f"there are no devices of class {found.device_class}{where}{problem}"
    details = ", ".join(_details(found))
    text = f"{found.free} of {counted(found.total, 'device')} of class {found.device_class} are free{where}"
    text += f" ({details})" if details else ""
    return text + _need(found)


def _details(found: DeviceSupply) -> Iterator[str]:
    """Yield the devices that are not free, by reason."""
    counts = {"allocated": found.taken, "used up": found.used_up, "tainted": found.tainted}
    yield from (f"{number} {reason}" for reason, number in counts.items() if number)
    request = f"request {found.request}"
    if found.too_small:
        yield f"{found.too_small} too small for {request}"
    if found.unmatched:
        selector = f": {_quoted(found.selector)}" if found.selector else ""
        yield f"{found.unmatched} {_verb(found.unmatched)} not match {request}{selector}"
    if found.failing:
        yield f"{found.failing} cannot be matched with {request}: {_quoted(found.problem)}"


def _need(found: DeviceSupply) -> str:
    """Return why the devices that are free are not enough for a pod, where that is known."""
    if not found.free:
        return ""
    if not found.needed:
        return f"; request {found.request} takes all devices of a node"
    if found.most < found.needed:
        return f"; a pod needs {found.needed} on one node, which has at most {found.most}"
    if not found.counted and found.free < found.pods * found.needed:
        return f"; {counted(found.pods, 'pod')} need {found.pods * found.needed}"
    return f"; those of a pod have to {found.constraint}" if found.constraint else ""


def _verb(number: int) -> str:
    return "does" if number == 1 else "do"


def _quoted(text: str) -> str:
    return truncate(" ".join(text.split()), MAX_QUOTED)
