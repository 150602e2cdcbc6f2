"""Producers with transactions while coordinator and writer are killed, and what came of it."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from mqstore.client import Client, Target
from mqstore.service.sockets import bind
from tests import forked_processes
from tests.forked_processes import ForkedProcess
from tests.services.service_processes import await_ready, environment
from tests.services.transaction_shard import bodies_of

GROUP: Final = "billing"
TOPIC: Final = "orders"
QUEUES: Final = 4
PRODUCERS: Final = 3
AGAIN_S: Final = 0.02
PATIENCE_S: Final = 120.0
SETTINGS: Final = {
    "mapped_file_size_commit_log": 8 << 20,
    "transaction_time_out": 0,
    "transaction_check_interval": 1_000,
    "transaction_check_max": 1_000,
}
ANSWERED: Final = range(200, 500)


class Machine:
    """The three services over one store; each port stays open while its process is replaced."""

    def __init__(self, root: Path, stack: contextlib.ExitStack) -> None:
        self._store = root / "store"
        self._listeners: dict[str, socket.socket] = {}
        self._processes: dict[str, ForkedProcess] = {}
        for name in ("writer", "query", "coordinator"):
            self._listeners[name] = stack.enter_context(bind("127.0.0.1", 0))
        self._given = {
            **SETTINGS,
            "writer_url": self.url("writer"),
        }
        stack.callback(self._end)
        for name in self._listeners:
            self.start(name)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._listeners[name].getsockname()[1]}"

    def start(self, name: str) -> None:
        """A process of this service."""
        listener = self._listeners[name]
        given = environment(store=self._store, listen_fd=listener.fileno(), **self._given)
        self._processes[name] = forked_processes.start(
            f"mqstore.{name}", environment=given, listener=listener
        )

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self._processes[name].communicate(PATIENCE_S)

    def _end(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.communicate()


@dataclass
class Planned:
    """A producer's plan for one transaction."""

    bodies: list[str]
    commits: bool
    silent: bool
    """Whether the producer decides only when it is checked."""
    void: bool = False
    """A crash cut its begin short, and the reply said so."""


@dataclass
class Producers:
    """Threads that begin and decide, and one that answers checks, until they are to stop."""

    machine: Machine
    seed: int
    plan: dict[str, Planned] = field(default_factory=dict)
    failures: list[BaseException] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)
    answers: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        for number in range(PRODUCERS):
            self._run(lambda number=number: self._produce(number))
        self._run(self._answer_checks)

    def await_answers(self, count: int) -> None:
        """Until so many more requests were answered."""
        for _ in range(count):
            assert self.answers.acquire(timeout=PATIENCE_S), self.failures
        assert not self.failures, self.failures

    def finish(self) -> None:
        """Let each come to the end of what it does, and everything be decided."""
        self.stopping.set()
        for thread in self._threads[:-1]:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), self.failures
        with httpx.Client(base_url=self.machine.url("coordinator"), timeout=60) as http:
            while self._request(http, "GET", "/v1/transactions")["transactions"]:
                self.stopping.wait(0)
        self.done.set()
        self._threads[-1].join(PATIENCE_S)
        assert not self.failures, self.failures

    def _run(self, act: Any) -> None:
        def run() -> None:
            try:
                act()
            except BaseException as error:  # reported by the test's own thread
                self.failures.append(error)

        thread = threading.Thread(target=run)
        self._threads.append(thread)
        thread.start()

    def _produce(self, number: int) -> None:
        rng = random.Random(self.seed * PRODUCERS + number)
        with httpx.Client(base_url=self.machine.url("coordinator"), timeout=60) as http:
            count = 0
            while not self.stopping.is_set():
                bodies = [f"{number}.{count}.{part}" for part in range(rng.choice([1, 1, 2]))]
                count += 1
                self._live(http, Planned(bodies, rng.random() < 0.6, rng.random() < 0.1))

    def _live(self, http: httpx.Client, planned: Planned) -> None:
        keys = [f"k{body}" for body in planned.bodies]
        self.plan[keys[0]] = planned
        messages = [
            {"body": body, "uniqKey": key} for body, key in zip(planned.bodies, keys, strict=True)
        ]
        spec = {"producerGroup": GROUP, "topic": TOPIC, "messages": messages}
        begun = self._request(http, "POST", "/v1/transactions", spec)
        if "transactionId" not in begun:
            assert begun["decision"] == "rollback", begun
            planned.void = planned.commits
        elif not planned.silent:
            self._decide(http, begun["transactionId"], planned)

    def _decide(self, http: httpx.Client, transaction: str, planned: Planned) -> None:
        how = "commit" if planned.commits else "rollback"
        decided = self._request(http, "POST", f"/v1/transactions/{transaction}:{how}")
        assert decided.get("state") in ("committed", "rolled-back") or planned.void, decided

    def _answer_checks(self) -> None:
        with httpx.Client(base_url=self.machine.url("coordinator"), timeout=60) as http:
            while not self.done.is_set():
                request = {"producerGroup": GROUP, "wait": 1}
                for each in self._request(http, "POST", "/v1/checks", request).get(
                    "transactions", []
                ):
                    key = each["transactionId"].partition("-")[2]
                    self._decide(http, each["transactionId"], self.plan[key])

    def _request(
        self, http: httpx.Client, method: str, path: str, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the answer; retries until there is one."""
        while True:
            try:
                answer = http.request(method, path, json=body)
            except httpx.TransportError:
                answer = None
            if answer is not None and answer.status_code in ANSWERED:
                self.answers.release()
                found: dict[str, Any] = answer.json()
                return found
            self.done.wait(AGAIN_S)


def live(root: Path, seed: int, rounds: int) -> Counter[str]:
    """Run until so many kills happened; returns the killed processes after all checks passed."""
    rng = random.Random(seed)
    killed: Counter[str] = Counter()
    with machine_at(root) as (machine, client):
        producers = Producers(machine, seed)
        producers.start()
        try:
            producers.await_answers(10)
            for _ in range(rounds):
                killed[_kill(machine, producers, rng)] += 1
            producers.finish()
        finally:
            producers.stopping.set()
            producers.done.set()
        _check(producers, bodies_of(client, TOPIC, QUEUES))
    return killed


def _kill(machine: Machine, producers: Producers, rng: random.Random) -> str:
    """One kill, and the next process; what it was."""
    how = rng.choice(["coordinator", "writer", "coordinator writer"])
    producers.await_answers(rng.randrange(1, 20))
    for name in how.split():
        machine.kill(name)
    for name in how.split():
        machine.start(name)
    return how


@contextlib.contextmanager
def machine_at(root: Path) -> Iterator[tuple[Machine, Client]]:
    with contextlib.ExitStack() as stack:
        machine = Machine(root, stack)
        client = stack.enter_context(Client(machine.url("writer"), machine.url("query")))
        await_ready(client, Target.WRITER)
        client.create_topic(TOPIC, queues=QUEUES)
        await_ready(client, Target.QUERY)
        yield machine, client


def _check(producers: Producers, seen: Counter[str]) -> None:
    """Assert that each committed message exists once, and no other."""
    wanted = {
        body: int(planned.commits and not planned.void)
        for planned in producers.plan.values()
        for body in planned.bodies
    }
    wrong = {body: seen[body] for body, count in wanted.items() if seen[body] != count}
    assert not wrong, f"seen otherwise than decided: {wrong}"
    assert seen.keys() <= wanted.keys()
