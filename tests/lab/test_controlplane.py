"""Starting, checking and stopping components, with small programs instead of the real ones."""

import datetime as dt
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cpg_lab import certificates, controlplane, probing, workloads
from cpg_lab.commands import ClusterFiles
from cpg_lab.controlplane import ControlPlane
from cpg_lab.errors import StartError
from cpg_lab.specs import ClusterSpec

Script = Callable[[str, str], Path]

SERVER = """
import http.server, sys
port = next(part for part in sys.argv if part.startswith("--listen-client-urls=")).rpartition(":")[2]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()
"""
CONTROLLER = """
import http.server, os, pathlib, re, ssl, sys, threading, time
config = pathlib.Path(next(part for part in sys.argv if part.startswith("--config=")).partition("=")[2]).read_text()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path.startswith(("/readyz", "/validate-")) else 404)
        self.end_headers()
health = http.server.HTTPServer(("127.0.0.1", int(re.search(r"Address: 127.0.0.1:(\\d+)", config)[1])), Handler)
threading.Thread(target=health.serve_forever, daemon=True).start()
time.sleep(1)
served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
folder = pathlib.Path(os.environ["TMPDIR"], "k8s-webhook-server", "serving-certs")
served.load_cert_chain(folder / "tls.crt", folder / "tls.key")
hooks = http.server.HTTPServer(("127.0.0.1", int(re.search(r" port: (\\d+)", config)[1])), Handler)
hooks.socket = served.wrap_socket(hooks.socket, server_side=True)
print("serves its webhooks", flush=True)
hooks.serve_forever()
"""
READY_CHECK = probing.unready_reason
LOSES_PORT_ONCE = """
import pathlib, sys
mark = pathlib.Path(__file__).with_suffix(".mark")
if not mark.exists():
    mark.touch()
    sys.exit("listen tcp 127.0.0.1:1: bind: address already in use")
"""


@pytest.fixture
def plane(tmp_path: Path, program: Script) -> Iterator[Callable[[str], ControlPlane]]:
    """Return a control plane with a script as etcd."""
    made: list[ControlPlane] = []
    (tmp_path / "logs").mkdir()

    def make(etcd: str) -> ControlPlane:
        made.append(ControlPlane(ClusterSpec(), ClusterFiles(tmp_path), {"etcd": program("etcd", etcd)}))
        return made[-1]

    yield make
    for each in made:
        each.stop()


Make = Callable[[str], ControlPlane]


@pytest.fixture(autouse=True)
def _no_certificates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the health check of etcd's plain HTTP use no authority."""
    assert tmp_path.is_dir()
    real = probing.unready_reason
    monkeypatch.setattr(
        probing,
        "unready_reason",
        lambda url, path, **_: real(url, path, ca_file=None, token=None),
    )


def test_starting_returns_once_the_component_is_ready(plane: Make) -> None:
    """A second start does nothing."""
    running = plane(SERVER)
    running.start_component("etcd")
    first = running.processes["etcd"]
    running.start_component("etcd")
    assert running.processes["etcd"] is first
    assert first.is_running
    assert running.dead() == {}


def test_a_death_while_starting_is_reported_at_once(plane: Make) -> None:
    """The error has name and log of a component that dies, long before the timeout."""
    began = time.monotonic()
    with pytest.raises(StartError, match=r"(?s)etcd died while starting \(exit code 1\).*bad flag --frob"):
        plane("import sys; sys.exit('bad flag --frob')").start_component("etcd")
    assert time.monotonic() - began < 5


def test_a_component_that_never_answers_is_an_error(plane: Make) -> None:
    """The error after the timeout has the last failure of the health check."""
    with pytest.raises(StartError, match=r"(?s)etcd was not ready within 0 s \(.*the end of its log:\nhello"):
        plane("import time; print('hello', flush=True); time.sleep(60)").start_component("etcd", 0.4)


def test_a_lost_port_is_replaced(plane: Make) -> None:
    """A component that lost its port to another process is started again on another port."""
    running = plane(LOSES_PORT_ONCE + SERVER)
    running.start_component("etcd")
    assert running.processes["etcd"].is_running
    assert running.dead() == {}


@pytest.mark.parametrize("before", ["", LOSES_PORT_ONCE], ids=["at once", "after a lost port"])
def test_a_controller_is_ready_once_it_serves_its_webhooks(
    before: str, tmp_path: Path, program: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With our certificate; after a lost port its configuration has new ones."""
    monkeypatch.setattr(probing, "unready_reason", READY_CHECK)
    now = dt.datetime.fromtimestamp(time.time(), dt.UTC)
    files = ClusterFiles(tmp_path)
    files.logs.mkdir()
    workloads.write_certificate(files.webhook_certificate, certificates.issue(tmp_path, now=now, service_ip="10.0.0.1"))
    running = ControlPlane(ClusterSpec(workloads=("lws",)), files, {"lws": program("lws", before + CONTROLLER)})
    try:
        running.start_component("lws")
        assert "serves its webhooks" in running.processes["lws"].output()
    finally:
        running.stop()


def test_losing_every_port_is_an_error(plane: Make) -> None:
    """After a few attempts."""
    with pytest.raises(StartError, match="address already in use"):
        plane("import sys; sys.exit('bind: address already in use')").start_component("etcd")


def test_a_killed_component_can_be_started_again(plane: Make) -> None:
    """It is reported as dead, and comes back on the same port."""
    running = plane(SERVER)
    running.start_component("etcd")
    url = running.url("etcd")
    running.kill_component("etcd")
    assert running.dead() == {"etcd": -9}
    running.start_component("etcd")
    assert running.url("etcd") == url
    running.stop_component("etcd")
    assert running.dead() == {"etcd": -15}


def test_unknown_components_are_errors(plane: Make) -> None:
    """And so are components that were not started."""
    running = plane(SERVER)
    with pytest.raises(StartError, match="the cluster has no scheduler; it has etcd, apiserver"):
        running.start_component("scheduler")
    with pytest.raises(StartError, match="etcd was not started yet"):
        running.kill_component("etcd")


def test_an_interrupt_skips_the_grace_period(plane: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C during the grace period kills the processes; none is left."""
    running = plane(SERVER)
    running.start_component("etcd")
    process = running.processes["etcd"]

    def impatient(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(controlplane, "stop_all", impatient)
    with pytest.raises(KeyboardInterrupt):
        running.stop()
    assert not process.is_running
    monkeypatch.undo()


def test_the_token_table_has_the_users(plane: Make, tmp_path: Path) -> None:
    """It contains the administrator, and it is private."""
    running = plane(SERVER)
    running._write_tokens()
    table = tmp_path / "tokens.csv"
    assert table.read_text() == f'{running.token},cpg-lab:admin,cpg-lab:admin,"system:masters"\n'
    assert table.stat().st_mode & 0o777 == 0o600
    assert json.dumps(running.token) not in str(running.processes)
