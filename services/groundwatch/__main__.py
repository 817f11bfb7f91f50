"""`groundwatch` and `python -m groundwatch`."""

import os

from groundwatch import termination


def main() -> None:
    """The command line. Loading it takes seconds, in which SIGTERM may come."""
    termination.install()
    # Whatever forks here runs another program at once; gRPC's care for what does not prints lines of its own.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    from groundwatch.cli import main as run_command

    run_command()


if __name__ == "__main__":
    main()
