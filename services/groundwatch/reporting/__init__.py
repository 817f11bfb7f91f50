"""What the recorded outcomes say, per model and judge, with intervals. Knows events only."""

from groundwatch.reporting.breakdown import Breakdown, render_breakdown
from groundwatch.reporting.published.comparison import Beside
from groundwatch.reporting.published.render import render_beside
from groundwatch.reporting.render import render
from groundwatch.reporting.report import Report

__all__ = ["Beside", "Breakdown", "Report", "render", "render_beside", "render_breakdown"]
