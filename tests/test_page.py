from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.ui import WebDriverWait

from reports.__main__ import main
from reports.article import Article, read_article
from reports.baselines import FOLDER, Baselines
from reports.cases import split_case_id
from reports.files import FileError
from reports.page.charts import overview, sweep_figures, sweeps
from reports.page.data import CaseRow, case_rows, change, claim_rows, verdict_counts
from reports.page.page import embed, format_bare, format_fact, metric_title, render, verdict_kind
from reports.regression.comparison import compare
from reports.regression.results import ResultFile, read_result
from reports.regression.rules import read_rules
from tests.browser import chromium, needs_chromium
from tests.results import claim, entry, metrics, write_entries

PAIR = ("saturated/normal", "saturated/overlap")
SPEED = {"normal": 1.0, "overlap": 1.3}
"""By scheduler; others are 1.1 times as fast as `normal`."""
HOSTILE = "x/a\"b'<script>alert(1)</script>&amp;--><!--é中over<b>lap"


def result(path: Path, *entries: dict[str, Any], **options: Any) -> ResultFile:
    return read_result(write_entries(path, entries, **options))


def case_entry(
    case: str, *, num_rounds: int = 1, shift: float = 0.0, device: str = "virtual", **options: Any
) -> dict[str, Any]:
    """Return an entry whose rounds differ by a little, the same ones each time; `shift` makes all of them slower."""
    speed = SPEED.get(split_case_id(case)[1], 1.1)
    factors = [(1 + shift + 0.001 * (index % 7)) / speed for index in range(num_rounds)]
    return entry(case, [metrics(slower=factor - 1) for factor in factors], device=device, **options)


def rows(*files: ResultFile) -> list[CaseRow]:
    return case_rows(files, read_article(), Baselines.read(FOLDER / "virtual.json"))


def made_up(*cases: str, tmp_path: Path) -> list[CaseRow]:
    return rows(result(tmp_path / "run.json", *map(case_entry, cases)))


def run_command(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "reports", "html", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


class Page(HTMLParser):
    """Collects the tags and the visible text of a page, and the data that its script reads."""

    APART = frozenset({"br", "li", "p", "summary", "td", "th"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.json = ""
        self.feed(text)
        self.data = json.loads(self.json)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in self.APART:
            self.texts.append(" ")

    def handle_data(self, data: str) -> None:
        tag, attributes = self.tags[-1] if self.tags else ("", {})
        if tag == "script" and attributes.get("type") == "application/json":
            self.json += data
        elif tag not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    def attributes(self, name: str) -> list[str]:
        return [str(found[name]) for _, found in self.tags if name in found]


# What the page is made of


def test_figures_are_against_normal_of_the_same_file_beside_the_articles_and_the_baselines(tmp_path: Path) -> None:
    rounds = [metrics(throughput_rps=10.0, ttft_mean_ns=40e6), metrics(throughput_rps=30.0, ttft_mean_ns=100e6)]
    normal = entry(PAIR[0], rounds, device="cpu")
    overlap = entry(PAIR[1], [metrics(throughput_rps=25.0, ttft_mean_ns=35e6)], device="cpu")
    first, second = rows(result(tmp_path / "run.json", normal, overlap))
    assert (first.is_reference, first.throughput.here, first.num_rounds) == (True, None, 2)
    assert second.throughput.here == 25 / 20 - 1
    assert second.ttft.here == pytest.approx(35 / 70 - 1)
    assert second.throughput.article == read_article().cases[PAIR[1]]["throughput_gain"]
    assert second.throughput.virtual == pytest.approx(0.3019, abs=1e-4)
    assert (second.forwards.article, second.forwards.here, second.forwards.virtual) == (None, 10, 5)
    assert second.is_in_article


def test_several_runs_are_pooled(tmp_path: Path) -> None:
    files = [
        result(
            tmp_path / f"{rate}.json",
            entry(PAIR[0], [metrics(throughput_rps=rate)], device="virtual", claims=[claim("test_a", verdict)]),
        )
        for rate, verdict in ((10.0, "HOLDS"), (20.0, "FAILS"), (30.0, "HOLDS"))
    ]
    (row,) = rows(*files)
    assert (row.throughput_rps, row.num_rounds) == (20.0, 3)
    (found,) = claim_rows(files, {})
    assert (found.outcome.verdict, found.num_alike, found.num_runs) == ("FAILS", 1, 3)


def test_runs_of_different_scales_are_not_pooled(tmp_path: Path) -> None:
    files = [result(tmp_path / f"{x}.json", case_entry(PAIR[0], scale=x)) for x in (0.5, 1.0)]
    with pytest.raises(FileError, match=r"saturated/normal on virtual has several time scales: 0\.5 in .*; give runs"):
        render(files, [], None)


@pytest.mark.parametrize(("own", "normal"), [(None, 1.0), (1.0, None), (1.0, 0.0), (None, None), (1e30, 1e-300)])
def test_a_change_without_meaning_is_none(own: float | None, normal: float | None) -> None:
    assert change(own, normal) is None


def test_a_metric_undefined_in_any_round_has_no_mean(tmp_path: Path) -> None:
    rounds = [metrics(throughput_rps=None), metrics()]
    (row,) = rows(result(tmp_path / "run.json", entry(PAIR[0], rounds, device="virtual")))
    assert row.throughput_rps is None
    assert row.ttft_mean_ns == 200e6


def test_a_metric_that_an_older_suite_did_not_know_is_undefined(tmp_path: Path) -> None:
    known = {name: value for name, value in metrics().items() if name != "ttft_mean_ns"}
    file = result(tmp_path / "run.json", entry(PAIR[0], [known], device="virtual"))
    assert rows(file)[0].ttft_mean_ns is None
    data = Page(render([file], [], None)).data
    assert data["cases"][0]["sides"]["head"]["ttft_mean_ns"] == [[None]]


def test_claims_stand_worst_first_once_for_each_device(tmp_path: Path) -> None:
    words = ["HOLDS", "NOT RUN", "FAILS", "UNDECIDED", "WHO KNOWS"]
    claims = [claim(f"test_{word.lower()}", word) for word in words]
    entries = [case_entry(case, device=device, claims=claims) for case in PAIR for device in ("virtual", "cpu")]
    found = claim_rows([result(tmp_path / "run.json", *entries)], {"test_holds": 0.25})
    verdicts = ["WHO KNOWS", "FAILS", "UNDECIDED", "NOT RUN", "HOLDS"]
    assert [row.outcome.verdict for row in found] == [verdict for verdict in verdicts for _ in range(2)]
    assert list(verdict_counts(found).items()) == [(verdict, 2) for verdict in verdicts]
    assert found[-1].article == 0.25


# Charts


def test_the_overview_has_a_point_for_each_compared_case(tmp_path: Path) -> None:
    cases = made_up(*PAIR, "other/normal", "other/overlap", "other/mine", "alone/mine", tmp_path=tmp_path)
    traces = overview(cases)["data"]
    assert {trace["name"]: trace["customdata"] for trace in traces} == {"overlap": [1, 3], "mine": [4]}
    assert traces[0]["x"] == pytest.approx([1.3, 1.3])
    assert "here too: other/overlap" in traces[0]["text"][0]


def test_a_case_without_throughput_has_no_point(tmp_path: Path) -> None:
    stopped = entry(PAIR[1], [metrics(throughput_rps=None)], device="virtual")
    found = overview(rows(result(tmp_path / "run.json", case_entry(PAIR[0]), stopped)))
    assert found["data"] == []


def test_ticks_of_ratios_read_as_percent(tmp_path: Path) -> None:
    axis = overview(made_up(*PAIR, tmp_path=tmp_path))["layout"]["xaxis"]
    assert dict(zip(axis["tickvals"], axis["ticktext"], strict=True))[1] == "0 %"
    assert "+25 %" in axis["ticktext"]
    assert axis["range"][0] < 0 < axis["range"][1]


def test_noise_is_not_blown_up_to_the_whole_axis(tmp_path: Path) -> None:
    equal = [entry(case, [metrics()], device="virtual") for case in PAIR]
    axis = overview(rows(result(tmp_path / "run.json", *equal)))["layout"]["xaxis"]
    assert axis["ticktext"] == ["-5 %", "0 %", "+5 %"]


def test_names_reach_plotly_without_tags(tmp_path: Path) -> None:
    cases = made_up("x/normal", "x/over<b>lap", tmp_path=tmp_path)
    (trace,) = overview(cases)["data"]
    assert trace["name"] == "over&lt;b&gt;lap"
    assert "over&lt;b&gt;lap" in trace["text"][0]


def test_a_number_in_an_id_makes_a_sweep(tmp_path: Path) -> None:
    names = [f"forward_{ms}ms/{scheduler}" for ms in (240, 12, 120) for scheduler in ("normal", "overlap")]
    cases = made_up(*names, "v2_a/normal", "v2_b/normal", tmp_path=tmp_path)
    (sweep,) = sweeps(cases)
    assert sweep.name == "forward_#ms"
    assert sweep.lines == {"normal": [(12, 2), (120, 4), (240, 0)], "overlap": [(12, 3), (120, 5), (240, 1)]}
    throughput, ttft = sweep_figures(sweep, cases)
    (line,) = throughput["data"]
    assert (line["name"], line["x"], line["y"]) == ("overlap", [12, 120, 240], pytest.approx([0.3] * 3))
    assert ttft["layout"]["yaxis"]["title"]["text"] == "mean TTFT against normal"


def test_a_sweep_of_schedulers_without_normal_shows_values(tmp_path: Path) -> None:
    cases = made_up(*(f"launch/lead_{lead}_pre" for lead in (-3, 0, 2.5)), tmp_path=tmp_path)
    (sweep,) = sweeps(cases)
    assert (sweep.name, sweep.lines) == ("launch/lead_#_pre", {"lead_#_pre": [(-3, 0), (0, 1), (2.5, 2)]})
    throughput, _ = sweep_figures(sweep, cases)
    assert throughput["layout"]["yaxis"]["title"]["text"] == "throughput (req/s)"
    assert throughput["data"][0]["y"] == pytest.approx([27.5] * 3)


@pytest.mark.parametrize(
    ("ids", "numbers"),
    [
        (("bs-8", "bs-16", "bs-32"), [8, 16, 32]),
        (("8", "16", "32"), [8, 16, 32]),
        (("a1b2", "a1b3", "a1b4"), [2, 3, 4]),
        (("9" * 400, "8" * 400, "7" * 400), None),
        (("a1", "a2"), None),
    ],
)
def test_which_numbers_count(ids: tuple[str, ...], numbers: list[float] | None, tmp_path: Path) -> None:
    found = sweeps(made_up(*(f"{each}/normal" for each in ids), tmp_path=tmp_path))
    assert [[x for x, _ in line] for sweep in found for line in sweep.lines.values()] == ([numbers] if numbers else [])


# The page


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), ("", "–"), (True, "yes"), (False, "no"), (700.0, "700"), (1980, "1980"), ("x", "x")],
)
def test_facts_read_well(value: object, text: str) -> None:
    assert format_fact(value) == text


def test_numbers_and_titles_read_well() -> None:
    assert format_bare(None, "throughput_rps") == "–"
    assert format_bare(1234.5, "throughput_rps") == "1,234.5"
    assert format_bare(2_500_000, "ttft_mean_ns") == "2.500"
    titles = [metric_title(name) for name in ("ttft_p99_ns", "throughput_rps", "num_forwards", "gpu_idle_share")]
    assert titles == ["TTFT p99 (ms)", "throughput (req/s)", "forwards", "GPU idle share"]
    assert [verdict_kind(word) for word in ("HOLDS", "REGRESSION", "CHANGED", "?")] == ["good", "bad", "open", "none"]


def test_embedded_data_cannot_leave_its_element() -> None:
    text = embed({"name": HOSTILE})
    assert "<" not in text
    assert json.loads(text) == {"name": HOSTILE}


def test_the_page_says_what_ran_where_and_what_came_out(tmp_path: Path) -> None:
    claims = [
        claim("test_saturated_overlap_raises_throughput"),
        claim("test_b", "FAILS", figure=None, reason="too <slow>"),
    ]
    entries = [case_entry(case, device="cuda", num_rounds=2, claims=claims) for case in PAIR]
    commit, time = "0123456789abcdef", "2026-11-30T01:02:03+00:00"
    failed = ["perf/test_x.py::test_b"]
    run = result(tmp_path / "run.json", *entries, commit=commit, time=time, failed=failed)
    page = Page(render([run], [], None))
    for words in (
        "claims 1 FAILS 1 HOLDS",
        "run.json commit 0123456789ab committed 2026-11-30 01:02:03+00:00",
        "GPU NVIDIA H200 driver 580.159.04 torch 2.11.0 CUDA – SM clock, MHz –",
        "power limit, W 700",
        "1 test failed in this run perf/test_x.py::test_b",
        "saturated overlap raises throughput → throughput +35.94 % +30.00 %",
        "b → throughput – – cuda too <slow>",
    ):
        assert words in page.text
    assert page.attributes("data-claim") == ["test_b", "test_saturated_overlap_raises_throughput"]


def test_a_page_needs_no_network(tmp_path: Path) -> None:
    page = Page(render([result(tmp_path / "run.json", *map(case_entry, PAIR))], [], None))
    linked = [link for name in ("src", "href") for link in page.attributes(name)]
    assert all(link.startswith(("#", "data:")) for link in linked)


def test_names_are_escaped_everywhere(tmp_path: Path) -> None:
    entries = [case_entry(HOSTILE, claims=[claim(HOSTILE, HOSTILE, reason=HOSTILE, section=HOSTILE)])]
    entries += [case_entry("x/normal"), case_entry("<i>/normal")]
    base = result(tmp_path / "base.json", *entries[:2], commit="<i>", time="<i>")
    head = result(tmp_path / "<run>.json", *entries, failed=[HOSTILE], commit="<i>", time="<i>")
    page = Page(render([head], [base], compare([base], [head], read_rules())))
    assert {tag for tag, _ in page.tags}.isdisjoint({"b", "i", "run"})
    assert sum(tag == "script" for tag, _ in page.tags) == 3
    assert page.attributes("data-claim") == [HOSTILE]
    assert HOSTILE in page.text
    assert page.data["cases"][0]["scheduler"] == HOSTILE.removeprefix("x/")


def test_the_comparison_stands_on_the_page_worst_first(tmp_path: Path) -> None:
    base = result(tmp_path / "base.json", *map(case_entry, PAIR), case_entry("gone/normal"))
    head = result(tmp_path / "head.json", case_entry(PAIR[0]), case_entry(PAIR[1], shift=0.1))
    page = Page(render([head], [base], compare([base], [head], read_rules())))
    assert "Virtual time is exact: any change of any metric counts." in page.text
    assert "1 only in base (renamed or removed?) gone/normal on virtual" in page.text
    table = page.text[page.text.index("visible from n verdict") :]
    assert table.index("REGRESSION") < table.index("OK")
    assert "throughput_rps 32.5 req/s 29.5455 req/s -9.09 % exact any 1 REGRESSION exact: any change counts" in table
    assert page.data["cases"][1]["sides"]["base"]["throughput_rps"] == [[pytest.approx(32.5)]]


# The command


def test_unusable_input_is_named_and_leaves_the_old_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_entries(tmp_path / "run.json", map(case_entry, PAIR))
    failed = write_entries(tmp_path / "failed.json", map(case_entry, PAIR), failed=["test_x"])
    (tmp_path / "file").write_text("")
    (tmp_path / "folder" / "index.html").mkdir(parents=True)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "index.html").write_text("old")
    for arguments, told in (
        ([tmp_path / "none.json", "-o", tmp_path / "old"], "no such file, and no stored run"),
        ([",", "-o", tmp_path / "old"], "RESULT: names no result; give a benchmark JSON"),
        ([path, "--base", "", "-o", tmp_path / "old"], "--base: names no result"),
        ([path, "--base", failed, "-o", tmp_path / "old"], "a failing run is no base"),
        ([path, "--rules", tmp_path / "none.toml", "-o", tmp_path / "old"], "none.toml: cannot be read"),
        ([path, "-o", tmp_path / "file" / "out"], "not written"),
        ([path, "-o", tmp_path / "file"], "not written"),
        ([path, "-o", tmp_path / "folder"], "not written"),
    ):
        monkeypatch.setattr(sys, "argv", ["reports", "html", *map(str, arguments)])
        assert main() == 2
        found = capsys.readouterr()
        assert found.out == ""
        assert told in found.err
        assert found.err.count("\n") == 1
    assert (tmp_path / "old" / "index.html").read_text() == "old"
    assert sorted(each.name for each in (tmp_path / "old").iterdir()) == ["index.html"]


@pytest.mark.parametrize("library", ["plotly", "jinja2"])
def test_a_missing_library_is_named_with_the_remedy(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    for loaded in [name for name in sys.modules if name.startswith(f"{library}.")]:
        monkeypatch.delitem(sys.modules, loaded)
    with pytest.raises(FileError, match=rf"needs {library}, which is not installed; install it with: pip install -e "):
        render([result(tmp_path / "run.json", case_entry(PAIR[0]))], [], None)


@pytest.mark.slow
def test_other_commands_do_not_load_the_libraries_of_the_page() -> None:
    code = "import sys, reports.__main__; print([x for x in ('plotly', 'jinja2', 'reports.page') if x in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout == "[]\n"


def test_an_article_without_figures_leaves_dashes(tmp_path: Path) -> None:
    file = result(tmp_path / "run.json", *map(case_entry, PAIR))
    found = case_rows([file], Article({}, {}), Baselines(tmp_path / "none.json", {}, {}, {}))
    assert [(row.is_in_article, row.throughput.virtual) for row in found] == [(False, None)] * 2
    assert re.search(r"saturated/<wbr>overlap", render([file], [], None))


# In a browser


def write_page(folder: Path, *, name: str = "overlap") -> str:
    """Write a page with a base, claims of every verdict and a sweep; return its address."""
    claims = [claim("test_good"), claim("test_bad", "FAILS", reason="much too slow"), claim("test_open", "UNDECIDED")]
    names = [*PAIR, f"starved/{name}", "starved/normal", "starved/mine"]
    names += [f"forward_{ms}ms/{scheduler}" for ms in (12, 120, 240) for scheduler in ("normal", "overlap")]
    shown = [case_entry(case, device="cpu", num_rounds=6, claims=claims) for case in names]
    before = [case_entry(case, device="cpu", num_rounds=6, shift=0.002) for case in names[:-1]]
    head, base = result(folder / "head.json", *shown), result(folder / "base.json", *before)
    path = folder / "index.html"
    path.write_text(render([head], [base], compare([base], [head], read_rules())), encoding="utf-8")
    return path.as_uri()


def errors(driver: webdriver.Chrome) -> list[str]:
    return [line["message"] for line in driver.get_log("browser") if line["level"] == "SEVERE"]


def chart_point(driver: webdriver.Chrome, chart: str, index: int) -> WebElement:
    """Return the mark of a case, which has to be on top at its place for a click to reach it."""
    script = """
        const chart = document.getElementById(arguments[0]);
        const trace = chart.data.findIndex((each) => (each.customdata || []).includes(arguments[1]));
        return chart.querySelectorAll(".scatterlayer .trace")[trace]
            .querySelectorAll(".point")[chart.data[trace].customdata.indexOf(arguments[1])];
    """
    found = driver.execute_script(script, chart, index)
    assert isinstance(found, WebElement)
    return found


def wait_for_text(driver: webdriver.Chrome, element: str, text: str) -> None:
    WebDriverWait(driver, 10).until(lambda _: driver.find_element(By.ID, element).text == text)


def plotted(driver: webdriver.Chrome, chart: str) -> list[dict[str, Any]]:
    script = "return document.getElementById(arguments[0]).data.map((t) => ({name: t.name, x: t.x, y: t.y}))"
    found: list[dict[str, Any]] = driver.execute_script(script, chart)
    return found


@pytest.mark.slow
@needs_chromium
def test_a_click_selects_a_case_and_draws_its_rounds(tmp_path: Path) -> None:
    with chromium(tmp_path / "profile") as driver:
        driver.get(write_page(tmp_path))
        wait_for_text(driver, "selected-case", "saturated/overlap")
        before = plotted(driver, "distribution")
        assert [(trace["name"], len(trace["y"])) for trace in before] == [("base", 6), ("head", 6)]
        ActionChains(driver).move_to_element(chart_point(driver, "overview", 4)).click().perform()
        wait_for_text(driver, "selected-case", "starved/mine")
        assert plotted(driver, "distribution")[1]["y"] != before[1]["y"]
        Select(driver.find_element(By.ID, "metric")).select_by_visible_text("forwards")
        assert plotted(driver, "distribution")[1]["y"] == [10] * 6
        driver.find_element(By.ID, "siblings").click()
        assert {trace["x"][0] for trace in plotted(driver, "distribution")} == {"normal", "overlap", "mine"}
        Select(driver.find_element(By.ID, "case")).select_by_visible_text("forward_240ms/overlap")
        wait_for_text(driver, "selected-case", "forward_240ms/overlap")
        assert [trace["name"] for trace in plotted(driver, "distribution")] == ["base", "head", "head"]
        driver.find_element(By.CSS_SELECTOR, "#cases-table button.case").click()
        wait_for_text(driver, "selected-case", "saturated/normal")
        assert errors(driver) == []
        assert driver.execute_script("return performance.getEntriesByType('resource').map((e) => e.name)") == []


@pytest.mark.slow
@needs_chromium
def test_a_click_filters_claims_by_verdict(tmp_path: Path) -> None:
    with chromium(tmp_path / "profile") as driver:
        driver.get(write_page(tmp_path))
        claims = driver.find_elements(By.CSS_SELECTOR, "[data-claim]")
        assert [row.get_attribute("data-claim") for row in claims] == ["test_bad", "test_open", "test_good"]
        assert all(row.is_displayed() for row in claims)
        button = driver.find_element(By.CSS_SELECTOR, "[data-table=claims-table] [data-verdict=FAILS]")
        button.click()
        assert [row.is_displayed() for row in claims] == [True, False, False]
        assert button.get_attribute("aria-pressed") == "true"
        driver.find_element(By.CSS_SELECTOR, "[data-table=claims-table] [data-verdict='']").click()
        assert all(row.is_displayed() for row in claims)
        driver.find_element(By.ID, "only-article").click()
        shown = [row for row in driver.find_elements(By.CSS_SELECTOR, "#cases-table tbody tr") if row.is_displayed()]
        assert len(shown) < 11
        assert errors(driver) == []


@pytest.mark.slow
@needs_chromium
def test_small_changes_have_ticks_that_differ(tmp_path: Path) -> None:
    entries = [
        entry(f"forward_{ms}ms/{scheduler}", [metrics(throughput_rps=rate)], device="virtual")
        for ms in (12, 120, 240)
        for scheduler, rate in (("normal", 10.0), ("overlap", 10.01 + ms / 1e5))
    ]
    page = tmp_path / "page.html"
    page.write_text(render([result(tmp_path / "run.json", *entries)], [], None), encoding="utf-8")
    with chromium(tmp_path / "profile") as driver:
        driver.get(page.as_uri())
        ticks = driver.find_elements(By.CSS_SELECTOR, "[data-figure='0'] .ytick")
        labels = [tick.get_attribute("textContent") for tick in ticks]
        assert len(set(labels)) == len(labels) > 1


@pytest.mark.slow
@needs_chromium
def test_hostile_names_are_shown_as_they_are_on_a_narrow_screen(tmp_path: Path) -> None:
    name = HOSTILE.removeprefix("x/") + "<img src=x onerror=alert(1)>"
    with chromium(tmp_path / "profile", width=500) as driver:
        driver.get(write_page(tmp_path, name=name))
        Select(driver.find_element(By.ID, "case")).select_by_index(2)
        wait_for_text(driver, "selected-case", f"starved/{name}")
        legend = driver.find_element(By.CSS_SELECTOR, "#overview .legend").get_attribute("textContent")
        assert legend is not None
        assert name in legend
        assert driver.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
        assert driver.find_elements(By.CSS_SELECTOR, "img, body b") == []
        assert errors(driver) == []
