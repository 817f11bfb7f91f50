"""The archive that benchmarks ask: made as the writer makes it, whatever columns come."""

from __future__ import annotations

from groundwatch.archive.answers import AnswerIndex
from groundwatch.archive.outcomes import SCHEMA, Archive
from groundwatch.archive.query import Session
from groundwatch.reporting.answers import AnswerQuery
from groundwatch.runtime.settings import ArchiveSettings
from query import generate, report


def test_it_has_every_column_and_is_found_and_counted(tmp_path):
    archive = Archive(str(tmp_path))
    generate(archive, 40, 2)
    with Session(archive.snapshot()) as session:
        assert session.ask("SELECT count(*) FROM claims").rows == [[320]]
    assert set(archive.snapshot().dataset().schema.names) == set(SCHEMA.names)
    assert report(archive, ("model",)).rows()
    answers = AnswerIndex(ArchiveSettings(url=archive.url), ())
    answers.refresh()
    assert len(answers.search(AnswerQuery(order="worst"), None, 100).hits) == 40
