"""``python -m vivace``, and the entry point of the command.

Importing the command line takes a moment, in which Ctrl-C is a wish like any other: the import is inside of what
understands it.
"""

from __future__ import annotations

import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit with its code; 130 for Ctrl-C."""
    try:
        from vivace.cli import run

        code = run()
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)


if __name__ == "__main__":
    main()
