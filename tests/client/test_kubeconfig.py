"""Kubeconfigs, and errors for invalid ones."""

import base64
import os
import re
from pathlib import Path

import msgspec
import pytest

from cpg_client import kubeconfig
from cpg_client.endpoint import Credentials, Endpoint, ExecPlugin
from cpg_client.errors import KubeconfigError

USER = {"client-certificate": "alice.crt", "client-key": "pki/alice.key", "token": "sesame", "tokenFile": "token"}
EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "command": "login", "interactiveMode": "IfAvailable"}
CLUSTER = {
    "server": "https://api.test:6443",
    "certificate-authority": "ca.crt",
    "tls-server-name": "kubernetes",
}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every test an empty home, and the files that certificates refer to."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    for name in ("ca.crt", "alice.crt", "pki/alice.key", "token"):
        tmp_path.joinpath(name).parent.mkdir(exist_ok=True)
        tmp_path.joinpath(name).write_text(name)


def config(
    name: str = "lab", *, cluster: object = CLUSTER, user: object = None, current: str | None = "", **more: object
) -> dict[str, object]:
    """Build a kubeconfig with one context, one cluster and one user, all of one name."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name if current == "" else current,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"of-{name}"}}],
        **more,
    }


def write(path: Path, content: object) -> Path:
    """Write a kubeconfig as JSON, which is YAML."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else msgspec.json.encode(content))
    return path


def test_relative_paths_start_from_the_file(tmp_path: Path) -> None:
    """All fields are read."""
    assert kubeconfig.load(write(tmp_path / "config", config(user=USER))) == Endpoint(
        server="https://api.test:6443",
        ca=tmp_path / "ca.crt",
        tls_server_name="kubernetes",
        credentials=Credentials(
            certificate=tmp_path / "alice.crt",
            key=tmp_path / "pki" / "alice.key",
            token="sesame",  # noqa: S106
            token_file=tmp_path / "token",
        ),
        namespace="of-lab",
        context="lab",
    )


def test_inlined_data_wins_over_files(tmp_path: Path) -> None:
    """It is decoded from base64."""
    ca, certificate, key = (base64.b64encode(text).decode() for text in (b"CA", b"CERT", b"KEY"))
    user = USER | {"client-certificate-data": certificate, "client-key-data": key}
    endpoint = kubeconfig.load(
        write(tmp_path / "config", config(user=user, cluster=CLUSTER | {"certificate-authority-data": ca}))
    )
    assert endpoint.ca == b"CA"
    assert (endpoint.credentials.certificate, endpoint.credentials.key) == (b"CERT", b"KEY")


def test_only_the_server_is_required(tmp_path: Path) -> None:
    """Such an endpoint is anonymous, with the default namespace."""
    content = config(
        cluster={"server": "http://127.0.0.1:8001", "insecure-skip-tls-verify": True},
        users=None,
        contexts=[{"name": "lab", "context": {"cluster": "lab"}}],
    )
    assert kubeconfig.load(write(tmp_path / "config", content)) == Endpoint(
        server="http://127.0.0.1:8001", verify=False, context="lab"
    )


def test_a_plugin_is_read(tmp_path: Path) -> None:
    """A command with a folder is relative to the file, any other is found on the PATH; nulls count as absent."""
    more = {"args": ["-x"], "env": [{"name": "A", "value": "B"}], "installHint": "get it", "provideClusterInfo": True}
    endpoint = kubeconfig.load(write(tmp_path / "config", config(user={"exec": EXEC | more})))
    assert endpoint.credentials.plugin == ExecPlugin(
        api_version="client.authentication.k8s.io/v1",
        command="login",
        arguments=("-x",),
        environment=(("A", "B"),),
        cluster_info=True,
        install_hint="get it",
    )
    beside = EXEC | {"command": "bin/login", "env": None}
    plugin = kubeconfig.load(write(tmp_path / "config", config(user={"exec": beside}))).credentials.plugin
    assert plugin == ExecPlugin(api_version="client.authentication.k8s.io/v1", command=str(tmp_path / "bin" / "login"))


def test_a_context_can_be_selected(tmp_path: Path) -> None:
    """An argument wins over the current context."""
    both = config()
    other = config("other")
    content = {key: both[key] + other[key] for key in ("clusters", "users", "contexts")}  # type: ignore[operator]
    path = write(tmp_path / "config", content | {"current-context": "lab"})
    assert kubeconfig.load(path, "other").namespace == "of-other"
    assert kubeconfig.load(str(path)).namespace == "of-lab"


def test_the_default_file_is_at_home(tmp_path: Path) -> None:
    """Without an argument and $KUBECONFIG."""
    write(tmp_path / ".kube" / "config", config(cluster={"server": "https://api.test"}))
    assert kubeconfig.load().context == "lab"


def test_several_files_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first definition of a name wins, missing and empty entries are skipped, and paths belong to their file."""
    write(tmp_path / "first", config("shared", current=None, users=[]))
    second = config("shared", cluster={"server": "https://lost.test"}, user={"tokenFile": "token"})
    write(tmp_path / "deep" / "second", second)
    write(tmp_path / "deep" / "token", b"sesame")
    write(tmp_path / "third", config("third", cluster={"server": "https://third.test"}))
    names = ["", "missing", "first", "deep/second", "third"]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(str(tmp_path / name) if name else "" for name in names))
    endpoint = kubeconfig.load()
    assert (endpoint.server, endpoint.ca) == ("https://api.test:6443", tmp_path / "ca.crt")
    assert endpoint.credentials.token_file == tmp_path / "deep" / "token"
    assert kubeconfig.load(context="third").server == "https://third.test"


def test_a_missing_kubeconfig_names_the_searched_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none at all."""
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(["/nowhere/a", "/nowhere/b"]))
    with pytest.raises(KubeconfigError, match="no kubeconfig: /nowhere/a, /nowhere/b not found"):
        kubeconfig.load()
    monkeypatch.delenv("KUBECONFIG")
    with pytest.raises(KubeconfigError, match=re.escape(f"no kubeconfig: {tmp_path}/.kube/config not found")):
        kubeconfig.load()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a: [", "not YAML: while parsing"),
        (b"just text", "not a kubeconfig: Expected `object`, got `str`"),
        (b"\xff\xfe\xfd", "not YAML: "),
        (b"", "current-context: not set (known: none)"),
        (config(clusters=[{}]), "not a kubeconfig: Object missing required field `name` - at `$.clusters[0]`"),
        (config(current=None), "current-context: not set (known: lab)"),
        (config(current="gone"), "current-context: no context named 'gone' (known: lab)"),
        (config(clusters=None), "contexts[lab].context.cluster: no cluster named 'lab' (known: none)"),
        (config(users=[]), "contexts[lab].context.user: no user named 'lab' (known: none)"),
        (config(contexts=[{"name": "lab"}]), "contexts[lab].context.cluster: not set (known: lab)"),
        (config(cluster={"server": "api.test"}), "clusters[lab].cluster.server: not an http(s) address: 'api.test'"),
    ],
)
def test_invalid_files_are_errors(tmp_path: Path, content: object, problem: str) -> None:
    """The error names the file, the place in it, and the possible values."""
    path = write(tmp_path / "config", content)
    with pytest.raises(KubeconfigError) as caught:
        kubeconfig.load(path)
    assert str(caught.value).startswith(f"{path}: {problem}")


@pytest.mark.parametrize(
    ("cluster", "problem"),
    [
        ({"certificate-authority": "gone.crt"}, "certificate-authority: no such file: "),
        ({"certificate-authority-data": "***"}, "Invalid base64 encoded string"),
        ({"insecure-skip-tls-verify": True}, "insecure-skip-tls-verify: contradicts certificate-authority"),
        ({"proxy-url": "http://proxy.test"}, "proxy-url: proxies are not supported yet"),
    ],
)
def test_invalid_clusters_are_errors(tmp_path: Path, cluster: dict[str, object], problem: str) -> None:
    """No setting of a cluster is ignored."""
    path = write(tmp_path / "config", config(cluster=CLUSTER | cluster))
    with pytest.raises(KubeconfigError, match=re.escape(problem)):
        kubeconfig.load(path)


@pytest.mark.parametrize(
    ("user", "problem"),
    [
        ({"exec": EXEC | {"apiVersion": "v9"}}, "users[lab].user.exec.apiVersion: not one of client.authentication"),
        (
            {"exec": EXEC | {"interactiveMode": "Always"}},
            "users[lab].user.exec.interactiveMode: plugins that",
        ),
        ({"auth-provider": {"name": "oidc"}}, "users[lab].user.auth-provider: this way of"),
        ({"username": "alice", "password": "x"}, "users[lab].user.username: this way of"),
        ({"as": "root"}, "users[lab].user.as: this way of"),
        ({"client-key": "gone.key"}, "users[lab].user.client-key: no such file: "),
        ({"client-certificate": "alice.crt"}, "users[lab].user: client-certificate and client-key must come together"),
        ({"tokenFile": "gone"}, "users[lab].user.tokenFile: no such file: "),
    ],
)
def test_invalid_users_are_errors(tmp_path: Path, user: dict[str, object], problem: str) -> None:
    """No request acts as another user than configured."""
    path = write(tmp_path / "config", config(user=user))
    with pytest.raises(KubeconfigError, match=re.escape(f"{path}: {problem}")):
        kubeconfig.load(path)


def test_an_unknown_context_is_an_error(tmp_path: Path) -> None:
    """It lists the known contexts."""
    path = write(tmp_path / "config", config())
    with pytest.raises(KubeconfigError, match=re.escape(f"{path}: contexts: no context named 'prod' (known: lab)")):
        kubeconfig.load(path, "prod")


def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    """Such as a missing file or a folder that was named."""
    with pytest.raises(KubeconfigError, match=r"gone: cannot be read: No such file"):
        kubeconfig.load(tmp_path / "gone")
    with pytest.raises(KubeconfigError, match=r"cannot be read: Is a directory"):
        kubeconfig.load(tmp_path)


def test_an_alias_of_itself_is_an_error(tmp_path: Path) -> None:
    """It is reported with its file and line."""
    file = tmp_path / "config"
    file.write_text("clusters: &a [*a]")
    with pytest.raises(KubeconfigError, match="config: not YAML: an alias is inside of its own anchor"):
        kubeconfig.load(file)
