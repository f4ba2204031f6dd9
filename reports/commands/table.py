"""`python -m reports table`: the README's result table from the baselines."""

from __future__ import annotations

import argparse

from reports.baselines import FOLDER, file_for
from reports.files import FileError

HELP = "article, virtual device and a GPU side by side, as Markdown"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument("--gpu", default="nvidia-h200", help="name of the GPU, as 'NVIDIA H200' (default: %(default)s)")
    parser.add_argument("experiments", nargs="*", help="only these (default: all)")


def run(arguments: argparse.Namespace) -> int:
    """Print the table.

    Raises:
        FileError: if a baseline is missing or damaged, or an experiment unknown.
    """
    from reports.table import comparison, to_markdown  # pandas, which no other command needs

    path = file_for("cuda", arguments.gpu)
    if not path.exists():
        there = sorted({each.stem for each in FOLDER.glob("*.json")} - {"article", "virtual"})
        raise FileError(
            f"{path} does not exist; there are baselines of {', '.join(there)}; "
            "on such a GPU, record one with: pytest perf -m gpu --update-baselines REASON"
        )
    frame = comparison(path)
    known = list(dict.fromkeys(frame["experiment"]))
    unknown = set(arguments.experiments) - set(known)
    if unknown:
        raise FileError(f"no experiment {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    print(to_markdown(frame, arguments.experiments or known))
    return 0
