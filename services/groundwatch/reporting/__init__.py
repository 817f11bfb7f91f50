"""What the recorded outcomes say, per model and judge, with intervals. Knows events only."""

from groundwatch.reporting.beside import Beside
from groundwatch.reporting.beside_render import render_beside
from groundwatch.reporting.breakdown import Breakdown, render_breakdown
from groundwatch.reporting.render import render
from groundwatch.reporting.report import Report

__all__ = ["Beside", "Breakdown", "Report", "render", "render_beside", "render_breakdown"]
