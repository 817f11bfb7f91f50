"""The papers' tables of results as data: what they measured, in which unit, and where it is printed.

Numbers only; the words are ours. Each file `table-*.json` in a method's package is a `PublishedTable`.
"""

from functools import cache
from importlib.resources import files

import msgspec

from groundwatch.protocols.base import Figure
from groundwatch.protocols.registry import methods


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    paper: str
    table: str


class Column(Figure, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One column, and how the same number is made from recorded outcomes.

    That is as a protocol's own figures are, or with `average` the mean of these columns. With neither nobody
    but the paper has the number, such as a rank among its own models.

    `where` maps tags to the values that count here, "" standing for an absent tag. `judge` is the engine
    that judged, where the table has columns of several: outcomes of another are in no column. `derived`
    numbers are computed from the table's other columns.
    """

    protocol: str = ""
    average: tuple[str, ...] = ()
    where: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    judge: str = ""
    unit: str = ""
    derived: bool = False


class Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Columns that stand side by side on a screen, sorted by `headline`."""

    title: str
    headline: str
    columns: tuple[str, ...]


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model's numbers in the order of the columns; None where the paper prints none."""

    model: str
    values: tuple[float | None, ...]


class PublishedTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A printed table. Our numbers times `scale` are in its `unit`, printed with `decimals`; `bounds` are
    those of our numbers.

    `judge` and `data` say what the paper measured with and on, `notes` what else keeps its numbers and
    ours apart. `unscored` has the values by which the authors' code counts what is without a score here, by
    its reason.
    """

    protocol: str
    source: Source
    title: str
    unit: str
    scale: float
    decimals: int
    higher_is_better: bool
    judge: str
    data: str
    notes: tuple[str, ...]
    groups: tuple[Group, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    bounds: tuple[float, float] = (0.0, 1.0)
    unscored: dict[str, dict[str, float]] = {}

    @property
    def protocols(self) -> frozenset[str]:
        return frozenset(column.protocol for column in self.columns if column.protocol)


@cache
def tables() -> tuple[PublishedTable, ...]:
    decoder = msgspec.json.Decoder(PublishedTable)
    found = [
        decoder.decode(file.read_bytes())
        for method in methods().values()
        for file in (files(method.package).iterdir() if method.package else ())
        if file.name.startswith("table-") and file.name.endswith(".json")
    ]
    return tuple(sorted(found, key=lambda table: (table.protocol, int(table.source.table))))
