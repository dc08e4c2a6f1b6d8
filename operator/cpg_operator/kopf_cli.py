"""The operator under ``kopf run -m cpg_operator.handlers``: Kopf owns the process, and settings come from elsewhere.

The namespaces are those of Kopf's command line (``--namespace``, or ``--all-namespaces``), the cluster is the one of
``$KUBECONFIG``, and all other settings come from the file in ``$CPG_OPERATOR_CONFIG``.
"""

import os
import signal
from collections.abc import Mapping
from pathlib import Path

import click
import structlog

from cpg_client.incluster import find_endpoint
from cpg_client.process import ProcessContext, process_identity
from cpg_operator.metrics import OperatorMetrics
from cpg_operator.operator_run import OperatorRun
from cpg_operator.settings import Settings, load, merged

CONFIG_VARIABLE = "CPG_OPERATOR_CONFIG"


def run_from_environment() -> OperatorRun:
    """Return a run for the cluster and the settings in the environment."""
    process = ProcessContext(
        settings=settings_from_environment(os.environ), log=structlog.get_logger(), identity=process_identity()
    )

    def end_kopf(this_run: OperatorRun) -> None:
        if this_run.is_stopped:
            return
        process.log.warning("the operator has ended", error=repr(this_run.failure) if this_run.failure else None)
        signal.raise_signal(signal.SIGTERM)

    return OperatorRun(find_endpoint(None), process, OperatorMetrics(), on_end=end_kopf, owns_process=False)


def settings_from_environment(environment: Mapping[str, str]) -> Settings:
    """Return the settings of the file that the environment names, with the namespaces of Kopf's command line."""
    path = environment.get(CONFIG_VARIABLE)
    return merged(load(Path(path) if path else None), namespaces=_chosen_namespaces())


def _chosen_namespaces() -> tuple[str, ...] | None:
    """Return the namespaces of Kopf's command line: none for all of them, None where Kopf was started otherwise."""
    context = click.get_current_context(silent=True)
    if context is None or "namespaces" not in context.params:
        return None
    return tuple(context.params["namespaces"])
