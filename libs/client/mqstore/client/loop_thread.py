"""Runs a consumer or producer for asyncio in a thread, for applications without an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

from mqstore.client.errors import ClientError
from mqstore.client.home_process import HomeProcess
from mqstore.client.requests import Asynchronous

Running = TypeVar("Running", bound=AbstractAsyncContextManager[Any])
Result = TypeVar("Result")


class LoopThread(Generic[Running]):
    """Runs an asynchronous object on an event loop in a thread of its own. Thread-safe."""

    def __init__(
        self,
        kind: str,
        name: str,
        make_client: Callable[[], Asynchronous],
        make: Callable[[Asynchronous], Running],
    ) -> None:
        """``kind`` is what errors call the object, ``name`` is the thread's. Both functions are
        called on the thread."""
        self._kind = kind
        self._home = HomeProcess(kind)
        self._make_client = make_client
        self._make = make
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._leave = asyncio.Event()
        self._started: Future[Running] = Future()

    def start(self) -> None:
        """Start the thread; returns once the object runs. Raises what its start raises."""
        self._home.require()
        self._thread.start()
        self._started.result()

    def end(self) -> None:
        """End the object, and return once its thread has ended. A fork of its process has no such
        thread, and this does nothing there."""
        if not self._home.is_current:
            return
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join()

    @property
    def running(self) -> Running:
        """The object. Raises ClientError before the start, and in a fork of its process."""
        self._home.require()
        if not self._started.done():
            raise ClientError(f"the {self._kind} has not started; use it in a with statement")
        return self._started.result()

    @property
    def is_in_fork(self) -> bool:
        """Whether the caller runs in a fork of the process that this was made in."""
        return not self._home.is_current

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop; returns its result. Raises ClientError after the end."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as error:
            work.close()
            raise ClientError(f"the {self._kind} has ended") from error
        try:
            return future.result()
        finally:
            future.cancel()  # without effect, unless an interrupt ended the wait

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function on the loop, later. Raises RuntimeError after the end."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._live())
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _live(self) -> None:
        async with self._make_client() as client, self._make(client) as running:
            self._started.set_result(running)
            await self._leave.wait()
