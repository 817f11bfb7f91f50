"""Writes the dashboards as Grafana reads them: `python -m deploy.grafana.build` in the repository."""

from __future__ import annotations

import sys
from pathlib import Path

from deploy.grafana.boards import ALL
from grafana_foundation_sdk.cog.encoder import JSONEncoder

FOLDER = Path(__file__).with_name("dashboards")


def built() -> dict[str, str]:
    """The text of each file of the folder `dashboards`, by its name."""
    encoder = JSONEncoder(sort_keys=True, indent=1, ensure_ascii=False)
    texts = {}
    for name, board in ALL.items():
        made = board().build()
        for number, panel in enumerate(made.panels or (), start=1):
            panel.id_val = number
        texts[f"{name}.json"] = encoder.encode(made) + "\n"
    return texts


def main() -> None:
    """Write every file, and tell which."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in built().items():
        (FOLDER / name).write_text(text, "utf-8")
        sys.stdout.write(f"{FOLDER / name}\n")


if __name__ == "__main__":
    main()
