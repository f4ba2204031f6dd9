// Draws the charts, selects a case on a click, and filters rows by verdict; starts everything.

const PERCENTILES = [["ttft_mean_ns", "mean"], ["ttft_p50_ns", "p50"], ["ttft_p90_ns", "p90"], ["ttft_p99_ns", "p99"], ["ttft_max_ns", "max"]];
const BASE_COLOR = "#8c959f";
const FEWEST_FOR_BOX = 5;
let selected = 0;

const sidesOf = (it) => ["base", "head"].filter((side) => it.sides[side].total_ns.length > 0);

function drawAll(element, figure) {
  Plotly.newPlot(element, figure.data, layout(figure.layout), CONFIG);
  element.on("plotly_click", (event) => {
    const index = event.points[0].customdata;
    if (typeof index === "number") select(index);
  });
}

function shownMetric() {
  return data.metrics[byId("metric").selectedIndex];
}

// One value for each round, with what to say about it; undefined values are left out.
function points(it, side, metric) {
  const found = [];
  it.sides[side][metric.name].forEach((rounds, run, runs) =>
    rounds.forEach((value, round) => {
      if (value === null) return;
      const place = runs.length > 1 ? `run ${run + 1}, round ${round + 1}` : `round ${round + 1}`;
      found.push({ y: metric.is_time ? value / 1e6 : value, text: `${side}, ${place}` });
    }));
  return found;
}

function boxTrace(it, side, metric, category) {
  const values = points(it, side, metric);
  const color = side === "base" ? BASE_COLOR : data.colors[it.scheduler];
  const hasBox = values.length >= FEWEST_FOR_BOX;
  return {
    type: "box",
    name: side,
    legendgroup: side,
    x: values.map(() => category),
    y: values.map((value) => value.y),
    text: values.map((value) => value.text),
    hovertemplate: "%{y}<br>%{text}<extra></extra>",
    hoveron: "points",
    boxpoints: "all",
    jitter: values.length > 1 ? 0.5 : 0,
    pointpos: 0,
    marker: { color: color, size: 7, opacity: 0.8 },
    line: { color: hasBox ? color : "rgba(0,0,0,0)", width: 1 },
    fillcolor: hasBox ? "rgba(0,0,0,0.03)" : "rgba(0,0,0,0)",
    offsetgroup: side,
    alignmentgroup: "all",
  };
}

function drawDistribution(it) {
  const metric = shownMetric();
  const siblings = byId("siblings").checked;
  const shown = siblings ? family(it) : [it];
  const traces = shown.flatMap((each) => sidesOf(each).map((side) =>
    boxTrace(each, side, metric, plain(siblings ? each.scheduler : side))));
  const axes = { xaxis: { type: "category" }, yaxis: { title: { text: metric.title } } };
  Plotly.react("distribution", traces, layout({ ...axes, showlegend: false, boxmode: siblings ? "group" : "overlay" }), CONFIG);
  byId("distribution-note").textContent = note(it, metric);
}

function note(it, metric) {
  const counts = sidesOf(it).map((side) => {
    const all = it.sides[side][metric.name].flat();
    const defined = all.filter((value) => value !== null).length;
    const rounds = `${all.length} ${all.length === 1 ? "round" : "rounds"}`;
    return `${side}: ${rounds}${defined === all.length ? "" : `, undefined in ${all.length - defined}`}`;
  });
  const exact = it.device === "virtual" ? " Virtual time is exact: one round is enough." : "";
  const colors = byId("siblings").checked && data.hasBase ? " Grey: base." : "";
  return `${metric.title}, ${counts.join("; ")}.${exact}${colors}`;
}

function family(it) {
  return data.cases.filter((each) => each.experiment === it.experiment && each.device === it.device);
}

function meanOf(it, side, name) {
  const values = it.sides[side][name].flat();
  const isUndefined = values.length === 0 || values.includes(null);
  return isUndefined ? null : values.reduce((sum, value) => sum + value, 0) / values.length / 1e6;
}

function drawPercentiles(it) {
  const known = PERCENTILES.filter(([name]) => family(it).some((each) => sidesOf(each).some((side) => meanOf(each, side, name) !== null)));
  const traces = family(it).flatMap((each) => sidesOf(each).map((side) => ({
    type: "scatter",
    mode: "lines+markers",
    name: plain(each.scheduler),
    showlegend: side === "head",
    legendgroup: each.scheduler,
    x: known.map(([, title]) => title),
    y: known.map(([name]) => meanOf(each, side, name)),
    connectgaps: true,
    hovertemplate: `%{x} %{y:,.3f} ms<br>${plain(each.scheduler)}, ${side}<extra></extra>`,
    line: { color: data.colors[each.scheduler], width: each === it ? 3 : 1.25, dash: side === "base" ? "dot" : "solid" },
    marker: { size: each === it ? 8 : 5 },
  })));
  const values = traces.flatMap((trace) => trace.y).filter((value) => value !== null);
  const isWide = Math.max(...values) > 5 * Math.min(...values) && Math.min(...values) > 0;
  const yaxis = isWide ? { type: "log", dtick: "D2" } : { rangemode: "tozero" };
  Plotly.react("percentiles", traces, layout({ yaxis: { title: { text: "TTFT (ms)" }, ...yaxis } }), CONFIG);
}

// The ring around the selected case is the overview's last trace.
function markOverview() {
  const traces = data.overview.data;
  const last = traces.length - 1;
  for (const trace of traces.slice(0, last)) {
    const at = trace.customdata.indexOf(selected);
    if (at >= 0) {
      Plotly.restyle("overview", { x: [[trace.x[at]]], y: [[trace.y[at]]] }, [last]);
      return;
    }
  }
  Plotly.restyle("overview", { x: [[]], y: [[]] }, [last]);
}

function select(index) {
  selected = index;
  const it = data.cases[index];
  byId("selected-case").textContent = caseName(it);
  byId("selected-device").textContent = `on ${it.device}`;
  byId("case").selectedIndex = index;
  drawDistribution(it);
  drawPercentiles(it);
  markOverview();
  if (data.timelines) showTimeline(index);
}

function fillSelects() {
  for (const it of data.cases) byId("case").add(new Option(caseTitle(it)));
  for (const metric of data.metrics) byId("metric").add(new Option(metric.title, metric.name));
  byId("metric").value = "ttft_mean_ns";
  byId("case").addEventListener("change", (event) => select(event.target.selectedIndex));
  for (const id of ["metric", "siblings"]) byId(id).addEventListener("change", () => drawDistribution(data.cases[selected]));
}

function connectRows() {
  for (const button of document.querySelectorAll("button.case")) {
    button.addEventListener("click", () => {
      select(Number(button.dataset.case));
      byId("selected-case").scrollIntoView({ block: "start" });
    });
  }
  for (const group of document.querySelectorAll(".filter")) {
    group.addEventListener("click", (event) => filter(group, event.target.closest("button")));
  }
  byId("only-article").addEventListener("change", (event) => {
    for (const row of document.querySelectorAll("#cases-table tbody tr")) {
      row.hidden = event.target.checked && row.dataset.article === "no";
    }
  });
}

function filter(group, pressed) {
  if (!pressed) return;
  for (const button of group.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button === pressed));
  const verdict = pressed.dataset.verdict;
  for (const row of document.querySelectorAll(`#${group.dataset.table} tbody tr`)) {
    row.hidden = verdict !== "" && row.dataset.verdict !== verdict;
  }
}

function start() {
  data.hasBase = data.cases.some((it) => sidesOf(it).includes("base"));
  data.overview.data.push({
    type: "scatter", mode: "markers", x: [], y: [], hoverinfo: "skip", showlegend: false,
    marker: { size: 20, symbol: "circle-open", color: "#1f2328", line: { width: 2 } },
  });
  // A single point says little by itself.
  byId("siblings").checked = data.cases.every((it) => it.sides.head.total_ns.flat().length === 1);
  fillSelects();
  connectRows();
  if (data.timelines) fillTimelineSelect(select);
  drawAll(byId("overview"), data.overview);
  for (const element of document.querySelectorAll(".sweep")) drawAll(element, data.sweeps[Number(element.dataset.figure)]);
  const first = data.cases.findIndex((it) => it.scheduler !== data.reference);
  select(Math.max(0, first));
}

start();
