"""Where words stand in the answers of the archive's files, from the newest on, while somebody asks."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from groundwatch.archive.outcomes import Archive
from groundwatch.archive.store import File, Store
from groundwatch.errors import TransientError
from groundwatch.reporting.answers import AnswerQuery
from groundwatch.times import moment_of

WORDS_SECONDS = 0.06
"""How long a search waits for words to be looked for."""

WORDS_GO_ON_SECONDS = 3.0
"""How long that goes on for who may ask again."""

WORDS_WAITING = 8
"""Searches for different words, one of which is looked for at a time."""

KEPT_PLACES = 2_000_000
"""Places of words that are remembered, of all searches together."""

_TEXTS = ["units.list.element.text", "claims.list.element.text"]


class _Words:
    """Where words stand, file by file; found by a thread that goes on for who asks again."""

    def __init__(self) -> None:
        self.places: dict[int, pa.Array] = {}
        self.news = threading.Condition()
        self.running = False
        self.asked = 0.0
        self.failed: Exception | None = None


class WordSearch:
    """Looks for words in one thread, for all who search."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._words: OrderedDict[tuple[str, ...], _Words] = OrderedDict()
        self._lock = threading.Lock()
        self._looking = ThreadPoolExecutor(1, "answers-words")
        self._waiting = 0
        self._closed = False

    def close(self) -> None:
        self._closed = True
        self._looking.shutdown(wait=False, cancel_futures=True)

    def find(self, query: AnswerQuery, among: Mapping[int, File]) -> tuple[pa.Table, float | None]:
        """Where all the words stand in these files, as far as is known in time, and since when it is known.

        Who asks again soon is told more.
        """
        with self._lock:
            words = self._words.pop(query.words, None) or _Words()
            self._words[query.words] = words
            while len(self._words) > 1 and self._remembered() > KEPT_PLACES:
                self._words.popitem(last=False)
        files = [(number, file) for number, file in among.items() if _covers(query, file)]
        files.sort(key=lambda one: (one[1].day, one[0]), reverse=True)
        deadline = time.monotonic() + WORDS_SECONDS
        with words.news:
            words.asked = time.monotonic()
            left = any(number not in words.places for number, _ in files)
            # Where many look for words already, who asks again may have a turn.
            if left and not words.running and self._waiting < WORDS_WAITING:
                self._waiting += 1
                words.running = True
                self._looking.submit(self._look, query.words, words, files)
            while words.running and (seconds := deadline - time.monotonic()) > 0:
                words.news.wait(seconds)
            known = dict(words.places)
            failed, words.failed = words.failed, None
        if failed is not None:
            raise failed
        searched, searched_to = [], None
        for number, file in files:
            if number in known:
                searched.append((number, known[number]))
            elif searched_to is None or query.order == "newest":
                searched_to = _end(file)
                if query.order == "newest":
                    break
        columns = (
            [
                pa.concat_arrays(
                    [pa.repeat(pa.scalar(number, pa.int32()), len(at)) for number, at in searched]
                ),
                pa.concat_arrays([at.cast(pa.int32()) for _, at in searched]),
            ]
            if searched
            else [pa.array([], pa.int32())] * 2
        )
        return pa.table(columns, ["file", "place"]), searched_to

    def _remembered(self) -> int:
        return sum(len(at) for words in self._words.values() for at in list(words.places.values()))

    def _look(self, wanted: tuple[str, ...], words: _Words, files: Sequence[tuple[int, File]]) -> None:
        try:
            for number, file in files:
                if self._closed or time.monotonic() > words.asked + WORDS_GO_ON_SECONDS:
                    return
                if number not in words.places:
                    places = _places(self._archive.store, file, wanted)
                    with words.news:
                        words.places[number] = places
                        words.news.notify_all()
        except FileNotFoundError:
            # It was replaced meanwhile, and the next refresh knows the one in its place.
            return
        except Exception as error:
            words.failed = TransientError(f"the archive at {self._archive.url} cannot be read: {error}")
        finally:
            self._waiting -= 1
            with words.news:
                words.running = False
                words.news.notify_all()


def _places(store: Store, file: File, words: Sequence[str]) -> pa.Array:
    """The rows of a file in which each of these words stands somewhere."""
    found = []
    with store.open(file) as opened:
        parquet = pq.ParquetFile(opened)
        first = 0
        for group in range(parquet.num_row_groups):
            rows = parquet.read_row_group(group, _TEXTS, use_threads=False)
            masks = [_has(rows, word) for word in words]
            found.append(pc.add(pc.indices_nonzero(reduce(pc.and_, masks)).cast(pa.int64()), first))
            first += len(rows)
    return pa.concat_arrays(found) if found else pa.array([], pa.int64())


def _has(rows: pa.Table, word: str) -> pa.Array:
    """Which rows have a word in one of their texts."""
    mask = None
    for name in rows.column_names:
        column = rows[name].combine_chunks()
        texts = pc.struct_field(pc.list_flatten(column), "text")
        at = pc.list_parent_indices(column).filter(pc.match_substring(pc.utf8_lower(texts), word))
        inside = pc.is_in(pa.array(range(len(rows)), pa.int64()), at.cast(pa.int64()))
        mask = inside if mask is None else pc.or_(mask, inside)
    return mask


def _covers(query: AnswerQuery, file: File) -> bool:
    """Whether a file may have something of the time that is asked for; a file of no moment has any."""
    since = moment_of(query.since).date() - timedelta(days=1) if query.since is not None else file.day
    until = moment_of(query.until).date() if query.until is not None else file.day
    return since <= file.day <= until


def _end(file: File) -> float:
    """When the day of a file ends, in seconds since the epoch."""
    return (file.day - moment_of(0).date() + timedelta(days=1)).total_seconds()
