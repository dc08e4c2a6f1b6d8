"""The API server as a pod sees it, and the choice between it and a kubeconfig."""

import os
from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from cpg_client import kubeconfig
from cpg_client.endpoint import Credentials, Endpoint
from cpg_client.errors import EndpointError, KubeconfigError, NoKubeconfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def pod_endpoint(folder: Path = SERVICE_ACCOUNT, environment: Mapping[str, str] = os.environ) -> Endpoint:
    """Return the endpoint of the pod's service account: two variables and three files.

    The connection reads the token file again and again, because the token is rotated.
    """
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise EndpointError("not in a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    ca, token, namespace = folder / "ca.crt", folder / "token", folder / "namespace"
    for file in (ca, token):
        if not file.is_file():
            raise EndpointError(f"{file}: not there; does the pod set automountServiceAccountToken to false?")
    return Endpoint(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        ca=ca,
        credentials=Credentials(token_file=token),
        namespace=namespace.read_text("utf-8").strip() if namespace.is_file() else "default",
        context="in-cluster",
    )


def find_endpoint(
    path: str | PathLike[str] | None = None,
    context: str | None = None,
    *,
    folder: Path = SERVICE_ACCOUNT,
    environment: Mapping[str, str] = os.environ,
) -> Endpoint:
    """Return the requested endpoint, or the one that kubectl would find.

    A kubeconfig wins over the pod's service account. The service account is used where no kubeconfig exists and none
    was named by argument, by context or by $KUBECONFIG.
    """
    try:
        return kubeconfig.load(path, context)
    except NoKubeconfigError as missing:
        if context is not None or environment.get("KUBECONFIG"):
            raise
        try:
            return pod_endpoint(folder, environment)
        except EndpointError as error:
            raise KubeconfigError(f"{missing}; {error}") from error
