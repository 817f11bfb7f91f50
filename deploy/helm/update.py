"""Bring up to date what the chart carries of other rooms: `python deploy/helm/update.py`.

The schema of its values follows the services' settings; the alerting rules and the dashboards are copies,
since a chart can read no file outside itself. A test fails when one of them is stale.
"""

from __future__ import annotations

from pathlib import Path

import values_schema

DEPLOY = Path(__file__).parents[1]
CHART = DEPLOY / "helm" / "groundwatch"


def wanted() -> dict[Path, str]:
    """Every file as it must be."""
    copies = {CHART / "files" / path.name: path for path in (DEPLOY / "prometheus").glob("*.rules.yaml")}
    copies |= {
        CHART / "files" / "dashboards" / path.name: path
        for path in (DEPLOY / "grafana" / "dashboards").glob("*.json")
    }
    texts = {target: source.read_text("utf-8") for target, source in copies.items()}
    return {CHART / "values.schema.json": values_schema.rendered(), **texts}


def main() -> None:
    """Write them, and remove what is no longer there."""
    texts = wanted()
    for path in (CHART / "files").rglob("*"):
        if path.is_file() and path not in texts:
            path.unlink()
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
