"""What pages are told while runs go on: one watcher for all who look, and a stream of server-sent events for each."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager

from starlette.concurrency import run_in_threadpool

from airsplit.dashboard.live_runs import LiveRuns

PAUSE_S = 0.5
EVERY_SO_OFTEN = 4  # pauses between two looks at which runs there are
QUIET_S = 15.0
MOST_LISTENERS = 100

Told = dict[str, str]
"""The last that was said of each topic: a run's name, or "" for the list of runs."""


class Watcher:
    """Looks at the runs that somebody watches, as long as somebody does."""

    def __init__(self, runs: LiveRuns) -> None:
        self._runs = runs
        self._watched: Counter[str] = Counter()
        self._told: Told = {}
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._listeners = 0
        self._closing = False

    @property
    def is_full(self) -> bool:
        return self._listeners >= MOST_LISTENERS

    async def listen(self, names: Iterable[str]) -> AsyncIterator[str]:
        """Events, as they are sent: the list of runs and these runs, at once and whenever they change."""
        topics = ("", *dict.fromkeys(names))
        with self._watching(topics):
            seen = Told()
            while not self._closing:
                news = self._news
                for topic in topics:
                    said = self._told.get(topic)
                    if said is not None and seen.get(topic) != said:
                        seen[topic] = said
                        yield f"event: {'run' if topic else 'runs'}\ndata: {said}\n\n"
                try:
                    await asyncio.wait_for(news.wait(), QUIET_S)
                except TimeoutError:
                    yield ": still here\n\n"  # a page that is gone is noticed when it is written to

    def close(self) -> None:
        """End all streams."""
        self._closing = True
        self._wake()

    def _wake(self) -> None:
        """Let those who wait look again; who looks from now on waits for the next news."""
        self._news.set()
        self._news = asyncio.Event()

    @contextmanager
    def _watching(self, topics: Iterable[str]) -> Iterator[None]:
        self._listeners += 1
        self._watched.update(topics)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        try:
            yield
        finally:
            self._listeners -= 1
            self._watched.subtract(topics)
            self._watched = +self._watched
            self._told = {
                topic: said for topic, said in self._told.items() if topic in self._watched
            }

    async def _look(self) -> None:
        """Until nobody listens."""
        turn = 0
        while self._listeners and not self._closing:
            topics = [
                topic
                for topic in self._watched
                if topic or turn % EVERY_SO_OFTEN == 0 or topic not in self._told
            ]
            found = await run_in_threadpool(self._say, topics)
            changed = {
                topic: said
                for topic, said in found.items()
                if self._told.get(topic) != said and topic in self._watched
            }
            if changed:
                self._told |= changed
                self._wake()
            turn += 1
            await asyncio.sleep(PAUSE_S)

    def _say(self, topics: Iterable[str]) -> Told:
        said = {}
        for topic in topics:
            try:
                said[topic] = (
                    self._runs.run(topic).series()
                    if topic
                    else json.dumps(self._runs.overview(), allow_nan=False)
                )
            except Exception as error:  # whatever is wrong with one run, the others are told of
                said[topic] = json.dumps({"name": topic, "problem": self._runs.problem(error)})
        return said
