"""Everything is in the serving package; see groundwatch/models/serving/backend.py."""

from groundwatch.models.serving.backend import DetectorModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
