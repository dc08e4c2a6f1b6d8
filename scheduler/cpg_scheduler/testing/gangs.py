"""Gangs to schedule on a stage, and the attempts at them."""

from typing import Any

from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_engine.testing.builders import metadata, pod, pod_group
from cpg_scheduler.testing.stage import Stage


def gang(name: str, *, size: int = 2, minimum: int = 2, cpu: int = 1, created: str = "2026") -> list[Any]:
    """Return a gang of a creation time, and its pods."""
    named = [metadata(f"{name}-{number}", created=created, **{POD_GROUP_LABEL: name}) for number in range(size)]
    pods = [pod(meta.name, cpu=cpu, meta=meta) for meta in named]
    return [pod_group(name, gang=minimum, meta=metadata(name, created=created)), *pods]


def logged_attempts(stage: Stage) -> list[tuple[str, str]]:
    """Return the attempts in the log: the unit and the finding of each."""
    calls = [call.kwargs for call in stage.log.calls if call.kwargs.get("event") == "attempt"]
    return [(call["root"], call["finding"]) for call in calls]
