"""The command line: arguments, output and exit codes."""

from pathlib import Path

import pytest

from cpg_lab import __main__ as cli
from cpg_lab import building, deployment_host, labs, shell_environment
from cpg_lab.access import Access
from cpg_lab.errors import StartError
from cpg_lab.labs import Lab, LabReport
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec
from cpg_lab.versions import PROGRAMS

ACCESS = Access(
    url="https://127.0.0.1:1",
    ca_file=Path("/ca"),
    token="",
    kubeconfig=Path("/lab/kubeconfig"),
    kubectl_path=Path("/bin/echo"),
)


@pytest.fixture(autouse=True)
def _labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep labs in a folder of this test."""
    monkeypatch.setenv("KUBE_CPG_LAB", str(tmp_path / "labs"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_up_passes_all_options_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each option reaches the spec, and the access is printed."""
    started: list[tuple[str, ClusterSpec]] = []

    def up(lab: Lab, spec: ClusterSpec, _: object) -> bool:
        started.append((lab.name, spec))
        return len(started) == 1

    monkeypatch.setattr(Lab, "up", up)
    monkeypatch.setattr(Lab, "access", lambda _: ACCESS)
    command = ["up", "--name", "x", "--gates", "native", "--with", "scheduler,kwok", "--nodes", "2 nodes", "--fsync"]
    command += ["--workloads", "jobset,lws"]
    assert cli.main(command) == 0
    expected = ClusterSpec(
        gates="native",
        components=("scheduler", "kwok"),
        workloads=("jobset", "lws"),
        nodes=(NodePool.parse("2 nodes"),),
        fsync=True,
    )
    assert started == [("x", expected)]
    assert capsys.readouterr().out == "x runs: https://127.0.0.1:1\nexport KUBECONFIG=/lab/kubeconfig\n"
    assert cli.main(command) == 0
    assert "x runs already" in capsys.readouterr().out


def test_up_has_controllers_and_kwok_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """--with '' leaves them out."""
    started: list[ClusterSpec] = []

    def up(_: Lab, spec: ClusterSpec, __: object) -> bool:
        started.append(spec)
        return True

    monkeypatch.setattr(Lab, "up", up)
    monkeypatch.setattr(Lab, "access", lambda _: ACCESS)
    cli.main(["up"])
    cli.main(["up", "--kubernetes", "1.30", "--with", "", "--feature-gates", "A,B"])
    assert started[0] == ClusterSpec(components=("controller-manager", "kwok"))
    assert started[1] == ClusterSpec(kubernetes="1.30", further_gates=("A", "B"))


def test_errors_have_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An error that users can act upon is one message, with its notes, and exit code 1."""

    def fails(*_: object) -> None:
        problem = StartError("etcd died")
        problem.add_note("logs are kept")
        raise problem

    monkeypatch.setattr(building, "ensure", fails)
    assert cli.main(["build"]) == 1
    assert capsys.readouterr().err == "cpg-lab: etcd died\nlogs are kept\n"
    monkeypatch.undo()
    assert cli.main(["build", "frob"]) == 1
    assert "the lab has no program frob; it has etcd," in capsys.readouterr().err
    assert cli.main(["up", "--nodes", "many"]) == 1
    assert "is not a count" in capsys.readouterr().err


def test_an_interrupt_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C ends with the usual code and without a traceback."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(building, "ensure", interrupted)
    assert cli.main(["build", "kwok"]) == 130
    assert capsys.readouterr().err == "\ncpg-lab: interrupted\n"


def test_build_prints_paths(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the named programs, or of those that most clusters need, or of all."""
    monkeypatch.setattr(building, "ensure", lambda names: {name: Path("/cache", name) for name in names})
    assert cli.main(["build", "kwok"]) == 0
    assert capsys.readouterr().out.split() == ["kwok", "/cache/kwok"]
    assert cli.main(["build"]) == 0
    built = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    assert {"etcd", "kube-apiserver-1.30", "kwok", "helm"} <= built
    assert built.isdisjoint(
        {"jobset", "lws", "trainer", "ray", "kueue", "kube-controller-manager-1.30", "kube-apiserver-1.34"}
    )
    assert cli.main(["build", "--all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(PROGRAMS)


def test_status_fails_unless_all_components_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dead component is printed with its log."""
    assert cli.main(["status"]) == 1
    assert capsys.readouterr().out == "no lab runs\n"
    monkeypatch.setattr(labs, "known", lambda: [Lab("x")])
    well = LabReport("x", "ready", ClusterSpec(), "https://127.0.0.1:1", "", (("etcd", 7, True),))
    monkeypatch.setattr(Lab, "report", lambda _: well)
    assert cli.main(["status"]) == 0
    assert "x: ready  Kubernetes 1.37, default gates  https://127.0.0.1:1\n" in capsys.readouterr().out
    ill = LabReport("x", "ready", ClusterSpec(), "", "", (("etcd", 7, False),))
    monkeypatch.setattr(Lab, "report", lambda _: ill)
    assert cli.main(["status", "--name", "x"]) == 1
    assert "DEAD; see" in capsys.readouterr().out


def test_down_can_be_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    """Without an error; with --all there may be no lab."""
    assert cli.main(["down"]) == 0
    assert capsys.readouterr().out == "lab was down already\n"
    assert cli.main(["down", "--all"]) == 0


def test_kubeconfig_and_kubectl_need_a_running_lab(capsys: pytest.CaptureFixture[str]) -> None:
    """Otherwise both print how to start it."""
    for command in (["kubeconfig"], ["kubectl", "--", "get", "pods"], ["nodes", "2 nodes"]):
        assert cli.main(command) == 1
        assert "start it with: cpg-lab up --name lab" in capsys.readouterr().err


def test_kubectl_replaces_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It gets the lab's kubeconfig and all arguments after the dashes."""
    called: list[object] = []
    monkeypatch.setattr("os.execv", lambda *arguments: called.append(arguments))
    monkeypatch.setattr(Lab, "access", lambda _: ACCESS)
    cli.main(["kubectl", "--name", "x", "--", "get", "pods", "--watch"])
    assert called == [(Path("/bin/echo"), ["kubectl", "--kubeconfig=/lab/kubeconfig", "get", "pods", "--watch"])]
    assert cli.main(["kubeconfig"]) == 0
    assert capsys.readouterr().out == "/lab/kubeconfig\n"


def test_env_and_host_print_exports_and_urls(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first is for eval, the second prints the URL of each pod."""
    monkeypatch.setattr(shell_environment, "exports", lambda lab: f"export LAB={lab.name}\n")
    monkeypatch.setattr(
        deployment_host, "start_host", lambda lab, namespace: {f"{lab.name}-{namespace}": ["http://a", "http://b"]}
    )
    assert cli.main(["env", "--name", "x"]) == 0
    assert cli.main(["host", "--name", "x"]) == 0
    assert capsys.readouterr().out == "export LAB=x\nx-kube-cpg               http://a http://b\n"
