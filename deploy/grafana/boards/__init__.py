"""The dashboards, in the order in which people look at them."""

from deploy.grafana.boards.judges import judges
from deploy.grafana.boards.models import models
from deploy.grafana.boards.pipeline import pipeline
from deploy.grafana.boards.runs import runs

ALL = {"models": models, "pipeline": pipeline, "judges": judges, "runs": runs}

__all__ = ["ALL", "judges", "models", "pipeline", "runs"]
