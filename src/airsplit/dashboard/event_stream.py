"""Server-sent events: one watcher reads the runs, and a stream for each page sends what changed."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager

from starlette.concurrency import run_in_threadpool

from airsplit.dashboard.live_runs import LiveRuns

PAUSE_S = 0.5
# Looking for new runs walks through folders, so it happens only every few pauses.
PAUSES_PER_LISTING = 4
# A connection is found to be closed only by writing to it.
KEEP_ALIVE_S = 15.0
# Each listener keeps a connection open.
MAX_LISTENERS = 100

# JSON by topic: a run's name, or LISTING for the list of runs.
Messages = dict[str, str]
LISTING = ""


class Watcher:
    """Reads the runs that open pages show, as long as there are any.

    All methods but the reading itself run on the event loop, so no lock is needed.
    """

    def __init__(self, runs: LiveRuns) -> None:
        self._runs = runs
        self._listeners = 0
        self._topics: Counter[str] = Counter()
        self._latest: Messages = {}
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._is_closing = False

    @property
    def is_full(self) -> bool:
        return self._listeners >= MAX_LISTENERS

    async def listen(self, names: Iterable[str]) -> AsyncIterator[str]:
        """Yield events about the list of runs and these runs: the latest now, then changes."""
        topics = (LISTING, *dict.fromkeys(names))
        with self._subscribe(topics):
            sent = Messages()
            while not self._is_closing:
                # Taken before the messages are read, so that no change is missed.
                changed = self._changed
                for topic in topics:
                    message = self._latest.get(topic)
                    if message is not None and sent.get(topic) != message:
                        sent[topic] = message
                        kind = "runs" if topic == LISTING else "run"
                        yield f"event: {kind}\ndata: {message}\n\n"
                try:
                    await asyncio.wait_for(changed.wait(), KEEP_ALIVE_S)
                except TimeoutError:
                    # A comment, which browsers ignore.
                    yield ": keep-alive\n\n"

    def close(self) -> None:
        """End all streams."""
        self._is_closing = True
        self._notify()

    def _notify(self) -> None:
        """Wake all listeners; those that wait later get the next change."""
        self._changed.set()
        self._changed = asyncio.Event()

    @contextmanager
    def _subscribe(self, topics: Iterable[str]) -> Iterator[None]:
        """Count a listener of these topics, and start to watch if it is the first one."""
        self._listeners += 1
        self._topics.update(topics)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            self._listeners -= 1
            self._topics.subtract(topics)
            # Unary plus drops topics without listeners.
            self._topics = +self._topics
            self._latest = {
                topic: message for topic, message in self._latest.items() if topic in self._topics
            }

    async def _watch(self) -> None:
        """Read the topics of all listeners until the last one has left."""
        turn = 0
        while self._listeners and not self._is_closing:
            is_listing_due = turn % PAUSES_PER_LISTING == 0
            topics = [
                topic
                for topic in self._topics
                if topic != LISTING or is_listing_due or topic not in self._latest
            ]
            messages = await run_in_threadpool(self._read, topics)
            # Listeners may have left while the thread was reading.
            changes = {
                topic: message
                for topic, message in messages.items()
                if self._latest.get(topic) != message and topic in self._topics
            }
            if changes:
                self._latest |= changes
                self._notify()
            turn += 1
            await asyncio.sleep(PAUSE_S)

    def _read(self, topics: Iterable[str]) -> Messages:
        messages = {}
        for topic in topics:
            try:
                if topic == LISTING:
                    messages[topic] = json.dumps(self._runs.overview(), allow_nan=False)
                else:
                    messages[topic] = self._runs.run(topic).series()
            except Exception as error:
                # An unreadable run must not end the stream of the others.
                problem = {"name": topic, "problem": self._runs.problem(error)}
                messages[topic] = json.dumps(problem)
        return messages
