"""The components of one cluster as processes: started in order, watched while they start, stopped all.

A component that dies while it starts is reported at once, by name and with its last words, and not when a
timeout ends. One that lost its port to somebody else is started again with another port.
"""

import secrets
import time
from collections.abc import Mapping
from pathlib import Path

import yaml

from cpg_lab import commands, components, folders, ports, probing
from cpg_lab.access import write_kubeconfig
from cpg_lab.commands import ClusterFiles, CommandContext
from cpg_lab.components import ComponentKind
from cpg_lab.errors import StartError
from cpg_lab.processes import Process, stop_all
from cpg_lab.specs import ClusterSpec

START_TIMEOUT = 60.0
STOP_GRACE = 8.0
_POLL = 0.05
_PORT_ATTEMPTS = 4
_ADMINISTRATOR = "cpg-lab:admin"


class ControlPlane:
    """The processes of one cluster. It owns no folder: whoever makes it gives it one, and removes it."""

    def __init__(self, spec: ClusterSpec, files: ClusterFiles, programs: Mapping[str, Path]) -> None:
        self.files = files
        self.token = secrets.token_urlsafe(24)
        self._spec = spec
        self._programs = programs
        self._kinds = components.wanted(spec)
        self._tokens = {kind.name: secrets.token_urlsafe(24) for kind in self._kinds if kind.user}
        self._ports: dict[str, int] = {}
        self._processes: dict[str, Process] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The components, in order of starting."""
        return tuple(kind.name for kind in self._kinds)

    @property
    def processes(self) -> Mapping[str, Process]:
        """The components that were started, by name."""
        return self._processes

    def url(self, component: str) -> str:
        """Give where a component listens."""
        return self._setting.url(component, self._kind(component).scheme)

    def start(self) -> None:
        """Start everything: what the others lean on first, then the others side by side."""
        self.files.logs.mkdir(parents=True, exist_ok=True)
        self._write_tokens()
        for name in ("etcd", "apiserver"):
            self.start_component(name)
        self._write_client_files()
        rest = [kind for kind in self._kinds if kind.name not in self._processes]
        for kind in rest:
            self._launch(kind)
        for kind in rest:
            self._await_ready(kind, START_TIMEOUT)

    def stop(self) -> None:
        """Stop everything, clients before what they are clients of."""
        others = [process for name, process in self._processes.items() if name not in {"etcd", "apiserver"}]
        try:
            stop_all(others, STOP_GRACE)
            for name in ("apiserver", "etcd"):
                if name in self._processes:
                    self._processes[name].stop(STOP_GRACE)
        finally:  # even when somebody is too impatient for the grace
            for process in self._processes.values():
                process.kill()

    def start_component(self, name: str, timeout: float = START_TIMEOUT) -> None:
        """Start one component, for the first time or again, and wait until it is ready."""
        kind = self._kind(name)
        if name in self._processes and self._processes[name].alive:
            return
        self._launch(kind)
        self._await_ready(kind, timeout)

    def stop_component(self, name: str, grace: float = STOP_GRACE) -> None:
        """Ask one component to end, and end it by force if it does not."""
        self._process(name).stop(grace)

    def kill_component(self, name: str) -> None:
        """End one component without a warning, as a crash would."""
        self._process(name).kill()

    def dead(self) -> dict[str, int]:
        """Give the components that ended, each with its exit code."""
        codes = {name: process.exit_code for name, process in self._processes.items()}
        return {name: code for name, code in codes.items() if code is not None}

    @property
    def _setting(self) -> CommandContext:
        return CommandContext(spec=self._spec, files=self.files, ports=self._ports, stages=folders.stages_file())

    def _kind(self, name: str) -> ComponentKind:
        for kind in self._kinds:
            if kind.name == name:
                return kind
        raise StartError(f"the cluster has no {name}; it has {', '.join(self.names)}")

    def _process(self, name: str) -> Process:
        kind = self._kind(name)
        if kind.name not in self._processes:
            raise StartError(f"{name} was not started yet")
        return self._processes[kind.name]

    def _launch(self, kind: ComponentKind, *, fresh_ports: bool = False) -> None:
        if fresh_ports or kind.name not in self._processes:
            self._ports.update({port: ports.free_port() for port in kind.ports})
        program = self._programs[self._spec.program(kind.name)]
        self._processes[kind.name] = Process(
            kind.name, [program, *kind.command(self._setting)], log=self.files.log(kind.name)
        )

    def _await_ready(self, kind: ComponentKind, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        attempts = 1
        while (reason := self._unready_reason(kind)) is not None:
            process = self._processes[kind.name]
            if not process.alive:
                if ports.LOST_PORT not in process.output() or attempts >= _PORT_ATTEMPTS:
                    raise StartError(_last_words(process, f"died while starting (exit code {process.exit_code})"))
                attempts += 1
                self._launch(kind, fresh_ports=True)
            elif time.monotonic() > deadline:
                raise StartError(_last_words(process, f"was not ready within {timeout:.0f} s ({reason})"))
            else:
                time.sleep(_POLL)

    def _unready_reason(self, kind: ComponentKind) -> str | None:
        """Tell why a component is not ready. It may be somebody else who answers at a port that it lost."""
        for path in kind.health:
            reason = probing.unready_reason(
                self.url(kind.name), path, ca_file=self.files.certificates.ca, token=self.token
            )
            if reason is not None:
                return reason
        return None if self._processes[kind.name].alive else "it ended"

    def _write_tokens(self) -> None:
        users = [(self.token, _ADMINISTRATOR, "system:masters")]
        users += [(self._tokens[kind.name], kind.user, ",".join(kind.groups)) for kind in self._kinds if kind.user]
        rows = [f'{token},{user},{user},"{groups}"' for token, user, groups in users]
        self.files.tokens.touch(mode=0o600)
        self.files.tokens.write_text("\n".join(rows) + "\n")

    def _write_client_files(self) -> None:
        """Write what the API server's clients need to find it, now that its port is known."""
        authority = self.files.certificates.ca
        url = self.url("apiserver")
        write_kubeconfig(self.files.kubeconfig, url=url, ca_file=authority, token=self.token)
        for name, token in self._tokens.items():
            write_kubeconfig(self.files.kubeconfig_of(name), url=url, ca_file=authority, token=token)
        config = yaml.safe_dump(commands.scheduler_config(self._setting), sort_keys=False)
        self.files.scheduler_config.write_text(config)


def _last_words(process: Process, what: str) -> str:
    return f"{process.name} {what}; it said last:\n{process.tail() or '(nothing)'}"
