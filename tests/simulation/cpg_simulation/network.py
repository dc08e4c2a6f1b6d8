"""The network between the processes and the API server: bytes take time, and faults may hit each request.

Each connection keeps the order of its bytes, as TCP does. Requests of different connections overtake each other.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from random import Random
from typing import Protocol, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec.structs import replace

from cpg_simulation.apiserver.server import ApiServer
from cpg_simulation.apiserver.values import Answer, Request
from cpg_simulation.apiserver.watches import Watch
from cpg_simulation.virtual.coordinator import Coordinator
from cpg_simulation.virtual.loop import VirtualLoop
from cpg_simulation.virtual.machine import Machine
from cpg_simulation.virtual.process import Process
from cpg_simulation.virtual.sockets import VirtualSocket

LATENCY = (0.0002, 0.002)
"""The least and the usual most seconds that bytes are under way."""
SECONDS_BETWEEN_BOOKMARKS = 20.0
LINES_PER_CHUNK = 50
LINES_WITH_LAG = (1, 2, 5)
"""A watch that is late shows bit by bit what has happened."""
SECONDS_TO_NOTICE_LOSS = 30.0
"""Until the kernel of a process gives up a connection on which nothing is acknowledged; see ``cpg_client.sockets``."""
Received: TypeAlias = tuple[str, int] | None
"""A resource, and the revision of it that some bytes show."""
_LIST = re.compile(
    rb'\{"kind":"\w+List","apiVersion":"(?P<group>[^"]+)","metadata":\{[^}]*"resourceVersion":"(?P<revision>\d+)"\}'
)
"""A whole list, or its last page: the pages before continue."""
REASONS = {200: "OK", 201: "Created", 429: "Too Many Requests"}


@dataclass(frozen=True, kw_only=True)
class Treatment:
    """What the network and the server do to one request."""

    seconds_there: float = 0.0
    """Further seconds until the request arrives."""
    seconds_back: float = 0.0
    """Further seconds until the answer arrives."""
    is_lost_before: bool = False
    """The connection breaks before the server has the request."""
    is_lost_after: bool = False
    """The connection breaks after the server has carried it out."""
    is_cut: bool = False
    """The connection breaks in the middle of the answer."""
    answer: Answer | None = None
    """What the server answers instead of carrying it out."""
    retry_after: int = 0
    """The seconds of the header ``Retry-After`` of that answer, if it has one."""


NORMAL = Treatment()


class Faults(Protocol):
    """Decides what goes wrong on the way."""

    def treat(self, process: str, request: Request) -> Treatment:
        """Return what is to happen to a request."""

    def watch_lag(self, process: str, watch_number: int, path: str) -> float:
        """Return the seconds by which the next events of a watch are late."""

    def is_cut_off(self, process: str) -> bool:
        """Return whether nothing passes between a process and the API server."""


class Network:
    """The connections of all processes to one API server, which may be down."""

    def __init__(
        self, coordinator: Coordinator, server: ApiServer, machine: Machine, *, faults: Faults, random: Random
    ) -> None:
        """Connect nothing yet."""
        self.coordinator = coordinator
        self.server = server
        self.faults = faults
        self.random = random
        self.is_down = False
        self.requests = 0
        self.on_request: Callable[[Request], None] = lambda _: None
        """Called with each request when it is sent."""
        self.on_refused: Callable[[Request], None] = lambda _: None
        """Called with each request that the server refuses, or that is answered by a fault."""
        self.on_received: Callable[[str, str, int], None] = lambda *_: None
        """Called when a process has received a revision of a resource."""
        self._machine = machine
        self._connections: dict[int, _Connection] = {}
        self._numbers = 0
        server.on_write.append(lambda write: self._pump(write.resource))

    async def dial(self, process: Process, loop: VirtualLoop, host: str, port: int) -> VirtualSocket:
        """Connect a process."""
        del host, port
        found: asyncio.Future[VirtualSocket] = loop.create_future()

        def accept() -> None:
            if self.faults.is_cut_off(process.name):
                return  # nothing ever answers
            if self.is_down:
                loop.notify(_fail, found, ConnectionRefusedError("the API server is down"))
                return
            self._numbers += 1
            connection = _Connection(self, process, loop, self._numbers)
            self._connections[self._numbers] = connection
            loop.notify(_succeed, found, connection.socket)

        self.coordinator.after(2 * self.latency(), accept)
        return await found

    def latency(self) -> float:
        """Return the seconds that some bytes are under way."""
        least, most = LATENCY
        return least + self.random.random() * (most - least)

    def reset_all(self, process: str | None = None) -> None:
        """Break all connections, or those of one process."""
        for connection in list(self._connections.values()):
            if process in {None, connection.process.name}:
                connection.reset()

    def close_all(self, process: Process) -> None:
        """Close the connections of a process that has ended; what it has sent still arrives."""
        for connection in list(self._connections.values()):
            if connection.process is process:
                connection.close()

    def cut_watches(self, process: str, share: float) -> None:
        """Break some watches of a process, in the middle of what they send."""
        for connection in list(self._connections.values()):
            if connection.process.name == process and connection.watch is not None and self.random.random() < share:
                connection.cut()

    def forget(self, number: int) -> None:
        """Forget a connection that has ended."""
        self._connections.pop(number, None)

    def date(self) -> str:
        """Return the time of day as the API server has it."""
        return formatdate(self._machine.wall(), usegmt=True)

    def pump_all(self) -> None:
        """Let all watches send what they have."""
        for connection in list(self._connections.values()):
            connection.pump()

    def _pump(self, resource: str) -> None:
        for connection in list(self._connections.values()):
            if connection.watch is not None and connection.watch.call.kind.key == resource:
                connection.pump()


class _Connection:
    """The server's end of one connection."""

    def __init__(self, network: Network, process: Process, loop: VirtualLoop, number: int) -> None:
        """Answer requests of a process."""
        self.process = process
        self.number = number
        self.socket = VirtualSocket(loop, self)
        self.watch: Watch | None = None
        self._network = network
        self._received = b""
        self._is_open = True
        self._is_broken = False
        """Whether what is under way to the server is lost."""
        self._arrives_there = 0.0
        self._arrives_back = 0.0
        self._is_pumping = False
        self._lines = LINES_PER_CHUNK
        self._path = ""

    # Called by the process.

    def receive(self, data: bytes) -> None:
        """Take bytes, of which whole requests go their way."""
        self._received += data
        while self._is_open and (found := _parse(self._received)) is not None:
            request, self._received = found
            self._send(replace(request, user=self.process.name))

    def close(self) -> None:
        """Answer no more."""
        self._is_open = False
        self.watch = None
        self._network.forget(self.number)

    # Called by the network.

    def reset(self) -> None:
        """Break: what is under way in both directions is lost, what the server has received takes effect."""
        self._is_broken = True
        if self._is_open:
            self.close()
            self._network.coordinator.after(
                self._network.latency(), self.socket.end, ConnectionResetError("connection reset by peer")
            )

    def cut(self) -> None:
        """Break in the middle of a line."""
        self._deliver(b"40\r\n" + b'{"type":"MODIFIED","object":{"kind":"Pod", "metadata":{"name": "')
        self.reset()

    def pump(self) -> None:
        """Send the events that a watch has, a little later."""
        if self.watch is not None and not self._is_pumping:
            self._is_pumping = True
            network = self._network
            lag = network.faults.watch_lag(self.process.name, self.number, self._path)
            self._lines = network.random.choice(LINES_WITH_LAG) if lag else LINES_PER_CHUNK
            network.coordinator.after(network.latency() + lag, self._send_events)

    def _send(self, request: Request) -> None:
        network = self._network
        network.requests += 1
        network.on_request(request)
        treatment = network.faults.treat(self.process.name, request)
        self._arrives_there = max(
            self._arrives_there, network.coordinator.now + network.latency() + treatment.seconds_there
        )
        network.coordinator.at(self._arrives_there, self._arrive, request, treatment)

    def _arrive(self, request: Request, treatment: Treatment) -> None:
        network = self._network
        if self._is_broken:
            return
        if network.is_down or treatment.is_lost_before or network.faults.is_cut_off(self.process.name):
            self.reset()
            return
        # A request that has been sent takes effect, even where its process is dead by now.
        answer = treatment.answer or network.server.handle(request)
        if isinstance(answer, Answer) and answer.status >= 400:
            network.on_refused(request)
        if treatment.is_lost_after:
            self.reset()
        elif isinstance(answer, Watch):
            self._begin(answer, request)
        else:
            self._reply(answer, treatment, _revision_of_list(request, answer))

    def _reply(self, answer: Answer, treatment: Treatment, received: Received = None) -> None:
        head = (
            f"HTTP/1.1 {answer.status} {REASONS.get(answer.status, 'Status')}\r\nContent-Type: application/json\r\n"
            f"Date: {self._network.date()}\r\nContent-Length: {len(answer.body)}\r\n"
        )
        extra = f"Retry-After: {treatment.retry_after}\r\n" if treatment.retry_after else ""
        data = f"{head}{extra}\r\n".encode() + answer.body
        if treatment.is_cut:
            self._deliver(data[: self._network.random.randrange(1, len(data))], treatment.seconds_back)
            self.reset()
        else:
            self._deliver(data, treatment.seconds_back, received)

    def _begin(self, watch: Watch, request: Request) -> None:
        """Answer a watch that the server accepts."""
        if not self._is_open:
            return
        self.watch, self._path = watch, request.path
        self._deliver(
            f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: {self._network.date()}\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        coordinator = self._network.coordinator
        seconds = float(request.query.get("timeoutSeconds", "1800"))
        coordinator.after(seconds, self._end_watch, watch)
        coordinator.after(self._network.random.random() * SECONDS_BETWEEN_BOOKMARKS, self._bookmark, watch)
        self.pump()

    def _send_events(self) -> None:
        self._is_pumping = False
        watch, network = self.watch, self._network
        if watch is None or network.faults.is_cut_off(self.process.name):
            return
        if lines := watch.take(self._lines):
            self._deliver_chunk(b"".join(lines), (watch.call.kind.key, watch.version))
            if len(lines) == self._lines:
                self.pump()
        if watch.is_ended:
            self._end_watch(watch)

    def _bookmark(self, watch: Watch) -> None:
        if self.watch is watch:
            if not self._is_pumping and (line := watch.bookmark()):
                self._deliver_chunk(line)
            self._network.coordinator.after(SECONDS_BETWEEN_BOOKMARKS, self._bookmark, watch)

    def _end_watch(self, watch: Watch) -> None:
        if self.watch is watch:
            self.watch = None
            self._deliver(b"0\r\n\r\n")

    def _deliver_chunk(self, data: bytes, received: Received = None) -> None:
        self._deliver(b"%x\r\n%b\r\n" % (len(data), data), received=received)

    def _deliver(self, data: bytes, seconds: float = 0.0, received: Received = None) -> None:
        """Send bytes back, after those that are under way already."""
        if not self._is_open:
            return
        network = self._network
        self._arrives_back = max(self._arrives_back, network.coordinator.now + network.latency() + seconds)
        network.coordinator.at(self._arrives_back, self._deliver_now, data, received)

    def _deliver_now(self, data: bytes, received: Received) -> None:
        if not self._is_open:
            return
        if self._network.faults.is_cut_off(self.process.name):
            # The bytes are lost. The process finds out by the probes of its kernel, or by a time-out of its own.
            lost = ConnectionResetError("connection timed out")
            self._network.coordinator.after(SECONDS_TO_NOTICE_LOSS, self.socket.end, lost)
            self.close()
            return
        self.socket.deliver(data)
        if received is not None:
            self._network.on_received(self.process.name, *received)


def _revision_of_list(request: Request, answer: Answer) -> Received:
    """Return the resource and the revision of a list that an answer has, if it has one.

    A list of one object is read for its revision alone.
    """
    if request.query.get("limit") == "1":
        return None
    if request.method != "GET" or answer.status != 200 or not (found := _LIST.match(answer.body)):
        return None
    group = found["group"].rpartition(b"/")[0].decode()
    plural = request.path.rpartition("/")[2]
    return f"{plural}.{group}" if group else plural, int(found["revision"])


def _parse(data: bytes) -> tuple[Request, bytes] | None:
    """Return the first request and the rest of the data, or None where it is not complete."""
    head, found, rest = data.partition(b"\r\n\r\n")
    if not found:
        return None
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    length = int(headers.get("content-length", "0"))
    if len(rest) < length:
        return None
    method, target, _ = first.split(" ")
    return _request(method, target, headers, rest[:length]), rest[length:]


def _request(method: str, target: str, headers: Mapping[str, str], body: bytes) -> Request:
    url = urlsplit(target)
    return Request(
        method=method,
        path=unquote(url.path),
        query=dict(parse_qsl(url.query, keep_blank_values=True)),
        body=body,
        content_type=headers.get("content-type", "application/json"),
        manager=headers.get("user-agent", "").partition("/")[0],
    )


def _succeed(future: "asyncio.Future[VirtualSocket]", connected: VirtualSocket) -> None:
    if not future.done():
        future.set_result(connected)


def _fail(future: "asyncio.Future[VirtualSocket]", error: OSError) -> None:
    if not future.done():
        future.set_exception(error)
