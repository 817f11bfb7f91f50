"""What the recorded outcomes say, per model and judge, with intervals. Knows events only."""

from groundwatch.reporting.render import render
from groundwatch.reporting.report import Report

__all__ = ["Report", "render"]
