"""What the recorded outcomes say, per model and judge, with intervals. Knows events only."""

from groundwatch.reporting.breakdown import Breakdown, render_breakdown
from groundwatch.reporting.published import PublishedComparison, render_published
from groundwatch.reporting.render import render
from groundwatch.reporting.report import Report

__all__ = ["Breakdown", "PublishedComparison", "Report", "render", "render_breakdown", "render_published"]
