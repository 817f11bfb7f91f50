"""The command line, bent as `bending.py` says: `python entry.py serve extraction …`.

SIGTERM is answered from the first line on, as where the command line starts by itself.
"""

from __future__ import annotations

from groundwatch import termination

if __name__ == "__main__":
    termination.install()

    from bending import bend

    bend()
    from groundwatch.cli import main

    main()
