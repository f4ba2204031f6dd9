from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from reports.files import (
    FileError,
    read_json,
    require_number,
    require_writable_file,
    safe_name,
    write_json,
    write_text,
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"schema": 1, "cases": {', "not valid JSON"),
        ("", "not valid JSON"),
        ('{"schema": 1, "x": NaN}', "field 'x' is nan; expected a finite number or null; restore it"),
        ('{"schema": 1, "x": -Infinity}', "field 'x' is -inf; expected a finite number or null"),
        ("[1, 2]", "holds a list; expected an object"),
        ('"text"', "holds a str; expected an object"),
        ('{"schema": 1, "x": [0, {"y": 1e999}]}', "field 'x[1].y' is inf; expected a finite number or null"),
        ("[" * 900 + "]" * 900, "not valid JSON: maximum recursion depth exceeded"),
        ("{}", "field 'schema' is None; expected a whole number of at least 1"),
        ('{"schema": true}', "field 'schema' is True; expected a whole number"),
        ('{"schema": "1"}', "field 'schema' is '1'; expected a whole number"),
        ('{"schema": 0}', "field 'schema' is 0; expected a whole number of at least 1"),
        ('{"schema": 3}', "field 'schema' is 3, newer than 2; update this suite to read it"),
    ],
)
def test_a_bad_file_is_named_with_the_field_and_the_remedy(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text(text)
    with pytest.raises(FileError) as caught:
        read_json(path, schema=2)
    assert str(caught.value).startswith(f"{path}: ")
    assert told in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"missing\.json: cannot be read: .*No such file"):
        read_json(tmp_path / "missing.json", schema=1)
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match=r"binary\.json: cannot be read: .*decode"):
        read_json(tmp_path / "binary.json", schema=1)
    with pytest.raises(FileError, match="cannot be read"):
        read_json(tmp_path, schema=1)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(200_000_000)
    with pytest.raises(FileError, match=r"huge\.json: has 200 MB; allowed: 64 MB, .*; restore it"):
        read_json(path, schema=1)


def test_older_schemas_are_read(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text('{"schema": 1, "x": 5}')
    assert read_json(path, schema=2) == {"schema": 1, "x": 5}


def test_what_is_written_is_read_again_and_equal_data_gives_equal_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    write_json(first, {"schema": 1, "b": 0.1, "a": {"z": None, "ä": [1, 2]}})
    write_json(second, {"a": {"ä": [1, 2], "z": None}, "b": 0.1, "schema": 1})
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().endswith(b"}\n")
    assert read_json(first, schema=1) == {"schema": 1, "b": 0.1, "a": {"z": None, "ä": [1, 2]}}
    assert first.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_file_with_undefined_values_is_not_written(value: float, tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text("old")
    with pytest.raises(FileError, match=r"some\.json: not written: .*; undefined values must be null"):
        write_json(path, {"schema": 1, "x": value})
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["some.json"]


def test_a_symbolic_link_stays_one_and_its_target_is_written(tmp_path: Path) -> None:
    target, link = tmp_path / "far" / "target.json", tmp_path / "link.json"
    target.parent.mkdir()
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert not target.is_symlink()
    assert os.listdir(target.parent) == ["target.json"]


def test_what_is_no_regular_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "new")
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    assert pipe.is_fifo()
    write_text(Path(os.devnull), "new")
    assert Path(os.devnull).is_char_device()
    with pytest.raises(FileError, match=r"not written: .*s a directory"):
        write_text(tmp_path, "new")


def test_a_file_that_could_not_be_written_is_refused_before_and_others_are_left_as_they_are(tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    old.write_text("old")
    for path in (old, tmp_path / "new" / "new.json", Path(os.devnull)):
        require_writable_file(path)
    assert old.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["new", "old.json"]
    assert os.listdir(tmp_path / "new") == []
    for path in (tmp_path, old / "below.json", tmp_path / ("x" * 5000)):
        with pytest.raises(FileError, match=r"no file can be written there|cannot be written"):
            require_writable_file(path)


@pytest.mark.parametrize("step", ["os.replace", "os.chmod"])
def test_a_failure_at_any_step_leaves_the_old_file_and_nothing_else(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise OSError("no space left on device")

    path = tmp_path / "some.json"
    path.write_text("old")
    monkeypatch.setattr(os, step.split(".")[1], fail)
    with pytest.raises(FileError, match=r"some\.json: not written: no space left on device"):
        write_json(path, {"schema": 1})
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["some.json"]


def test_what_json_does_not_know_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text("old")
    with pytest.raises(TypeError):
        write_json(path, {"schema": 1, "x": object()})
    assert path.read_text() == "old"


@pytest.mark.parametrize("value", [True, "1", math.nan, math.inf, [1], {}])
def test_a_metric_is_a_finite_number_or_null(value: object) -> None:
    path = Path("some.json")
    assert require_number(path, "x", 3) == 3
    assert require_number(path, "x", 0.5) == 0.5
    assert require_number(path, "x", None) is None
    with pytest.raises(FileError) as caught:
        require_number(path, "cases.a.x", value)
    assert str(caught.value) == f"some.json: field 'cases.a.x' is {value!r}; expected a finite number or null"


def test_file_names_are_safe_and_differ_where_names_differ() -> None:
    assert safe_name("starved-overlap_1.5") == "starved-overlap_1.5"
    hostile = ["", ".", "..", "../../etc/passwd", "a/b", "a\\b", "-a/b", "a b", "ü", "\x00", "x" * 5000, "x" * 5001]
    names = [safe_name(name) for name in hostile]
    assert len(set(names)) == len(names)
    for name in names:
        assert name.isascii()
        assert "/" not in name
        assert "\\" not in name
        assert not name.startswith((".", "-"))
        assert 0 < len(name) < 100
