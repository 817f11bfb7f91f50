"""`groundwatch` and `python -m groundwatch`."""

from __future__ import annotations

from groundwatch import termination


def main() -> None:
    """The command line. Loading it takes seconds, in which SIGTERM may come."""
    termination.install()
    from groundwatch.cli import main as run_command

    run_command()


if __name__ == "__main__":
    main()
