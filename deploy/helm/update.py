"""Write the schema of the chart's values, which follows services' settings: `python deploy/helm/update.py`.

A test fails when it is stale. The alerting rules and the dashboards are links to where they are built, in the
folder `files`, which helm follows when it installs or packages the chart.
"""

from __future__ import annotations

from pathlib import Path

import values_schema

SCHEMA = Path(__file__).with_name("groundwatch") / "values.schema.json"

if __name__ == "__main__":
    SCHEMA.write_text(values_schema.rendered(), "utf-8")
