"""`python -m reports table`: print the README's result table from the baselines."""

from __future__ import annotations

import argparse
import sys

from reports.baselines import FOLDER
from reports.files import FileError
from reports.table import comparison, to_markdown


def main() -> int:
    """Run the command line; return 0, or 2 for unusable input."""
    parser = argparse.ArgumentParser(prog="python -m reports", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    table = commands.add_parser("table", help="article, virtual device and a GPU side by side, as Markdown")
    table.add_argument("--gpu", default="nvidia-h200", help="name of the GPU's baseline file (default: %(default)s)")
    table.add_argument("experiments", nargs="*", help="only these (default: all)")
    arguments = parser.parse_args()
    path = FOLDER / f"{arguments.gpu}.json"
    if not path.exists():
        print(f"{path} does not exist; record it with: pytest perf -m gpu --update-baselines", file=sys.stderr)
        return 2
    try:
        frame = comparison(path)
    except FileError as error:
        print(error, file=sys.stderr)
        return 2
    known = list(dict.fromkeys(frame["experiment"]))
    unknown = set(arguments.experiments) - set(known)
    if unknown:
        print(f"no experiment {', '.join(sorted(unknown))}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    print(to_markdown(frame, arguments.experiments or known))
    return 0


if __name__ == "__main__":
    sys.exit(main())
