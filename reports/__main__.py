"""`python -m reports`: tables and pages from stored results, and decisions about commits."""

from __future__ import annotations

import argparse
import sys

from reports.commands import compare, error_rates, gate, history, html, table
from reports.files import FileError
from reports.regression.comparison import Exit

INTERRUPTED = 130
"""As shells report a process that Ctrl-C ended."""
COMMANDS = {
    "table": table,
    "compare": compare,
    "gate": gate,
    "error-rates": error_rates,
    "history": history,
    "html": html,
}


def main() -> int:
    """Run the command line; return its exit code, which is 2 for unusable input and 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m reports", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in COMMANDS.items():
        command = commands.add_parser(name, help=module.HELP, description=module.HELP)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    arguments = parser.parse_args()
    try:
        return int(arguments.run(arguments))
    except FileError as error:
        print(error, file=sys.stderr)
        return Exit.UNUSABLE
    except KeyboardInterrupt:
        print("interrupted: nothing was decided", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
