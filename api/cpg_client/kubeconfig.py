"""Load kubeconfig files by the rules of kubectl.

The files are the given one, else every file of $KUBECONFIG, else ``~/.kube/config``. Several files merge entry by
entry. The first file that defines a name, or sets ``current-context``, wins, and missing files are skipped. Relative
paths are relative to their file.

Settings that kubectl supports and this package does not (auth providers, passwords, impersonation, proxies, interactive
plugins) are errors that name the setting. Ignoring one would act as another user than requested.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypeVar

import msgspec

from cpg_client.endpoint import Credentials, Endpoint, ExecPlugin
from cpg_client.errors import KubeconfigError, NoKubeconfigError
from cpg_client.yaml_reader import YamlFileError, read_yaml

_PLUGIN_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class _Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: bytes = b""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _Variable(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class _Exec(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    command: str
    args: tuple[str, ...] = ()
    env: tuple[_Variable, ...] = ()
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class _User(msgspec.Struct, frozen=True, rename="kebab"):
    client_certificate: str = ""
    client_certificate_data: bytes = b""
    client_key: str = ""
    client_key_data: bytes = b""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    exec: _Exec | None = None
    auth_provider: object = None
    as_user: str = msgspec.field(default="", name="as")


class _Context(msgspec.Struct, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: _Cluster = _Cluster()


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: _User = _User()


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: _Context = _Context()


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    current_context: str = ""
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()


_Entry = TypeVar("_Entry", _NamedCluster, _NamedUser, _NamedContext)
_Files = tuple[tuple[Path, _File], ...]


@dataclass(frozen=True)
class _Location:
    """A location in a file: for error messages, and as the base of relative paths."""

    file: Path
    inside: str

    def at(self, key: str) -> "_Location":
        return _Location(self.file, f"{self.inside}.{key}")

    def problem(self, what: str) -> KubeconfigError:
        return KubeconfigError(f"{self.file}: {self.inside}: {what}")

    def material(self, data: bytes, path: str) -> Path | bytes | None:
        """Return the inlined data, which wins, or the file, which must exist."""
        if data or not path:
            return data or None
        found = self.file.parent / path
        if not found.is_file():
            raise self.problem(f"no such file: {found}")
        return found


def load(path: str | PathLike[str] | None = None, context: str | None = None) -> Endpoint:
    """Return the endpoint of ``context``, or of the current context; raise ``KubeconfigError``."""
    files = _read_all(path)
    named, location = _choose_context(files, context)
    clusters = [(file, entry) for file, content in files for entry in content.clusters]
    file, cluster = _lookup(clusters, named.context.cluster, location.at("cluster"), "cluster")
    users = [(file, entry) for file, content in files for entry in content.users]
    credentials = Credentials()
    if named.context.user:
        source, user = _lookup(users, named.context.user, location.at("user"), "user")
        credentials = _credentials(user.user, _Location(source, f"users[{user.name}].user"))
    return _endpoint(
        cluster.cluster,
        _Location(file, f"clusters[{cluster.name}].cluster"),
        credentials=credentials,
        namespace=named.context.namespace or "default",
        context=named.name,
    )


def _read_all(path: str | PathLike[str] | None) -> _Files:
    if path is not None:
        return ((Path(path), _read(Path(path))),)
    listed = [Path(entry) for entry in os.environ.get("KUBECONFIG", "").split(os.pathsep) if entry]
    candidates = listed or [Path.home() / ".kube" / "config"]
    files = tuple((file, _read(file)) for file in candidates if file.exists())
    if not files:
        raise NoKubeconfigError(f"no kubeconfig: {', '.join(map(str, candidates))} not found")
    return files


def _read(path: Path) -> _File:
    try:
        return msgspec.convert(_without_nulls(read_yaml(path) or {}), _File)
    except YamlFileError as error:
        raise KubeconfigError(f"{path}: {error}") from error
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise KubeconfigError(f"{path}: not a kubeconfig: {error}") from error


def _without_nulls(value: object) -> object:
    """Drop null members. kubectl writes ``clusters: null`` for none, and reads any null as absent."""
    if isinstance(value, dict):
        return {key: _without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _choose_context(files: _Files, asked: str | None) -> tuple[_NamedContext, _Location]:
    contexts = [(file, entry) for file, content in files for entry in content.contexts]
    current = next((pair for pair in files if pair[1].current_context), files[0])
    referrer = _Location(current[0], "contexts" if asked else "current-context")
    file, named = _lookup(contexts, asked or current[1].current_context, referrer, "context")
    return named, _Location(file, f"contexts[{named.name}].context")


def _lookup(entries: Iterable[tuple[Path, _Entry]], name: str, referrer: _Location, kind: str) -> tuple[Path, _Entry]:
    """Return the first entry of a name; raise an error at the location that refers to it if there is none."""
    known = list(entries)
    for file, entry in known:
        if entry.name == name:
            return file, entry
    names = ", ".join(entry.name for _, entry in known) or "none"
    raise referrer.problem(f"no {kind} named {name!r} (known: {names})" if name else f"not set (known: {names})")


def _endpoint(
    cluster: _Cluster, location: _Location, *, credentials: Credentials, namespace: str, context: str
) -> Endpoint:
    if not cluster.server.startswith(("https://", "http://")):
        raise location.at("server").problem(f"not an http(s) address: {cluster.server!r}")
    if cluster.proxy_url:
        raise location.at("proxy-url").problem("proxies are not supported yet")
    ca = location.at("certificate-authority").material(
        cluster.certificate_authority_data, cluster.certificate_authority
    )
    if ca and cluster.insecure_skip_tls_verify:
        raise location.at("insecure-skip-tls-verify").problem("contradicts certificate-authority")
    return Endpoint(
        server=cluster.server,
        ca=ca,
        verify=not cluster.insecure_skip_tls_verify,
        tls_server_name=cluster.tls_server_name or None,
        credentials=credentials,
        namespace=namespace,
        context=context,
    )


def _credentials(user: _User, location: _Location) -> Credentials:
    unsupported = {
        "auth-provider": user.auth_provider,
        "username": user.username,
        "as": user.as_user,
    }
    for means, used in unsupported.items():
        if used:
            raise location.at(means).problem("this way of authentication is not supported yet")
    certificate = location.at("client-certificate").material(user.client_certificate_data, user.client_certificate)
    key = location.at("client-key").material(user.client_key_data, user.client_key)
    if (certificate is None) != (key is None):
        raise location.problem("client-certificate and client-key must come together")
    token_file = location.at("tokenFile").material(b"", user.token_file)
    return Credentials(
        certificate=certificate,
        key=key,
        token=user.token or None,
        token_file=token_file if isinstance(token_file, Path) else None,
        plugin=_plugin(user.exec, location.at("exec")) if user.exec else None,
    )


def _plugin(found: _Exec, location: _Location) -> ExecPlugin:
    if found.api_version not in _PLUGIN_VERSIONS:
        raise location.at("apiVersion").problem(f"not one of {', '.join(_PLUGIN_VERSIONS)}: {found.api_version!r}")
    if found.interactive_mode == "Always":
        raise location.at("interactiveMode").problem("plugins that must talk to a person are not supported")
    beside = os.sep in found.command
    return ExecPlugin(
        api_version=found.api_version,
        command=str(location.file.parent / found.command) if beside else found.command,
        arguments=found.args,
        environment=tuple((variable.name, variable.value) for variable in found.env),
        cluster_info=found.provide_cluster_info,
        install_hint=found.install_hint,
    )
