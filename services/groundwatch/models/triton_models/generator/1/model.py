"""Everything is in the serving package; see groundwatch/models/serving/backend.py."""

from groundwatch.models.serving.backend import GeneratorModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
