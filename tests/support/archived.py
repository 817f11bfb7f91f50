"""Looking through the files of an archive's table for what must not be there, or must."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow.parquet as pq

from groundwatch.archive.store import Store


def holding(store: Store, needles: Sequence[bytes]) -> list[str]:
    """The files that hold one of these byte strings, in a name, in any value, or as they lie there.

    Parquet is compressed, so its values are read and looked through; other files are as they are.
    """
    return [
        name
        for name in store.names()
        if any(needle in name.encode() for needle in needles) or _holds(store, name, needles)
    ]


def _holds(store: Store, name: str, needles: Sequence[bytes]) -> bool:
    with store.files.open_input_file(name) as file:
        if not name.endswith(".parquet"):
            data = file.readall()
            return any(needle in data for needle in needles)
        for batch in pq.ParquetFile(file).iter_batches():
            rows = [list(row.values()) for row in batch.to_pylist()]
            raw = [value for row in rows for value in row if isinstance(value, bytes)]
            texts = [[value for value in row if not isinstance(value, bytes)] for row in rows]
            whole = b"\0".join((msgspec.json.encode(texts), *raw))
            if any(needle in whole for needle in needles):
                return True
    return False
