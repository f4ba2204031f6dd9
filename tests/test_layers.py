"""Who may import whom: read from the import statements, those inside of functions too."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ("reports.white_box", "reports.page", "matplotlib", "plotly")
FORBIDDEN = {
    "impl": ("reports", "perf"),
    "reports/rows.py": PICTURES,
    "reports/bar_styles.py": PICTURES,
    "reports/trace.py": ("reports.bar_styles", *PICTURES),
    "reports/page": ("reports.white_box",),
    "reports/white_box": ("reports.page",),
}


def imported(path: Path, root: Path) -> Iterator[str]:
    """Yield what a module imports; of "from a import b" also a.b, which may be a module."""
    package = ".".join(path.relative_to(root).parent.parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = resolve_name("." * node.level + (node.module or ""), package)
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def violations(root: Path, part: str, forbidden: Iterable[str]) -> list[str]:
    """Return what a file, or all below a folder, imports of some packages."""
    path = root / part
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    assert files, f"{path}: no such file or folder"
    return [
        f"{file.relative_to(root)} imports {name}"
        for file in files
        for name in imported(file, root)
        if any(f"{name}.".startswith(f"{each}.") for each in forbidden)
    ]


@pytest.mark.parametrize(("part", "forbidden"), FORBIDDEN.items(), ids=FORBIDDEN)
def test_a_layer_imports_nothing_of_those_above_or_beside_it(part: str, forbidden: tuple[str, ...]) -> None:
    assert violations(ROOT, part, forbidden) == []


@pytest.mark.parametrize(
    "statement",
    [
        "import reports.white_box.bars",
        "import json, reports.white_box as pictures",
        "from reports.white_box.bars import draw_row",
        "from reports.white_box import bars",
        "from reports import white_box",
        "from .. import white_box",
        "from ..white_box import bars",
        "def draw():\n    from reports.white_box import bars",
        "if TYPE_CHECKING:\n    from reports.white_box.bars import draw_row",
    ],
)
def test_every_form_of_an_import_is_found(statement: str, tmp_path: Path) -> None:
    page = tmp_path / "reports" / "page"
    page.mkdir(parents=True)
    (page / "page.py").write_text("import json\nfrom reports.white_boxes import x\nfrom reports.rows import Row\n")
    assert violations(tmp_path, "reports/page", ("reports.white_box",)) == []
    (page / "charts.py").write_text(statement)
    found = violations(tmp_path, "reports/page", ("reports.white_box",))
    assert found
    assert all(each.startswith("reports/page/charts.py imports reports.white_box") for each in found)
