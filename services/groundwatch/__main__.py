"""`python -m groundwatch`."""

from __future__ import annotations

from groundwatch.cli import main

main()
