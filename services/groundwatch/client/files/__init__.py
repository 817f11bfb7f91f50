"""Files and folders of recorded responses in every format that is read, for `submit` and `score` alike."""

from groundwatch.client.files.reading import AnswerFile, Record

__all__ = ["AnswerFile", "Record"]
