// Draws the timeline of the selected case and, beneath it on the same axis, that of its reference.
// plotly's scattergl would be faster, but builds functions from text, which the page's security policy forbids.

const ROW_PX = 34, TOP_PX = 30, BOTTOM_PX = 75;
const NAMES_PX = 130;
const NARROW_PX = 600, MORE_LEGEND_PX = 60;
const LABEL_PX = 11, LETTER_PX = 7;
const LONGEST_NAME = 22;
// Heights, and the gap below a row and below a run, in rows.
const TITLE = 0.75, STRIP = 0.6, ROW = 1, GAP = 0.15, PANEL_GAP = 0.4;
// A page without traces has none of these, and draws no timeline.
const { styles: STYLES, bubble: BUBBLE, colors: BATCH_COLORS, strips: STRIPS } = data.timelines ?? {};
const CONTROLS = {
  displayModeBar: true,
  modeBarButtons: [["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"], ["toImage"]],
  doubleClick: "reset",
};
let shownTimeline = null;
let shownPanels = [];

const ms = (ns) => ns / 1e6;
const written = (ns) => `${ms(ns).toLocaleString("en", { maximumFractionDigits: 3 })} ms`;
const rounded = (ns) => (ms(ns) >= 999.5 ? Math.round(ms(ns)).toLocaleString("en") : String(Number(ms(ns).toPrecision(3))));
const cut = (name) => (name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME)}…` : name);

function fillTimelineSelect(select) {
  const chooser = byId("timeline-case");
  for (const index of Object.keys(data.timelines.cases)) chooser.add(new Option(caseTitle(data.cases[index]), index));
  chooser.addEventListener("change", () => select(Number(chooser.value)));
}

// A case without a trace leaves the timeline that is shown.
function showTimeline(index) {
  const hasTrace = index in data.timelines.cases;
  if (hasTrace || shownTimeline === null) shownTimeline = hasTrace ? index : Number(Object.keys(data.timelines.cases)[0]);
  byId("timeline-case").value = shownTimeline;
  const reference = data.timelines.cases[shownTimeline].reference;
  shownPanels = stack([shownTimeline, ...(reference === null ? [] : [reference])]);
  byId("timeline-notes").replaceChildren(...notes(index, hasTrace).map((text) => {
    const line = document.createElement("li");
    line.textContent = text;
    return line;
  }));
  drawTimeline();
}

function notes(index, hasTrace) {
  const missing = hasTrace ? [] : [`${caseTitle(data.cases[index])} has no trace in the folder; shown is another case`];
  return [...missing, ...shownPanels.flatMap((panel) => panel.run.notes.map((note) => `${panel.title}: ${note}`))];
}

// Return the runs with the places of their rows, counted from the top in rows.
function stack(indices) {
  let y = 0;
  const next = (height, gap) => {
    const top = y;
    y += height + gap;
    return { top, height, middle: top + height / 2 };
  };
  return indices.map((index) => {
    const run = data.timelines.cases[index];
    const panel = { run, title: caseTitle(data.cases[index]), heading: next(TITLE, 0), strips: {} };
    panel.strips[STRIPS.above] = next(STRIP, 0);
    panel.rows = run.rows.map(() => next(ROW, GAP));
    panel.strips[STRIPS.below] = next(STRIP, PANEL_GAP);
    panel.bottom = y;
    return panel;
  });
}

function drawTimeline() {
  const element = byId("timeline");
  const height = shownPanels.at(-1).bottom;
  // The legend stands below, in more lines where there is less room.
  const belowPx = BOTTOM_PX + (element.clientWidth < NARROW_PX ? MORE_LEGEND_PX : 0);
  const heightPx = height * ROW_PX + TOP_PX + belowPx;
  element.style.height = `${heightPx}px`;
  const end = ms(Math.max(...shownPanels.map((panel) => panel.run.end))) * 1.005 || 1;
  const axes = timelineAxes(end, height);
  const own = {
    ...axes,
    height: heightPx,
    barmode: "overlay",
    dragmode: "zoom",
    hoverlabel: { bgcolor: "#fff", bordercolor: "#8c959f", font: { color: "#1f2328" }, align: "left" },
    margin: { l: 10, r: 15, t: TOP_PX, b: belowPx },
    legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0 },
    shapes: backgrounds(),
    annotations: shownPanels.map(heading),
  };
  const view = viewOf(axes.xaxis.range, element.clientWidth - NAMES_PX);
  Plotly.newPlot(element, timelineTraces(view), layout(own), { ...CONFIG, ...CONTROLS });
  element.on("plotly_relayout", redrawTimeline);
}

// Draw only what can be seen, and what fits into it at this zoom: thousands of bars make the next zoom slow.
function redrawTimeline() {
  const element = byId("timeline");
  // Private names of plotly, which tells nowhere else how wide the axis is: to be looked at when plotly changes.
  const { range, _length } = element._fullLayout.xaxis;
  const hidden = new Set(element.data.filter((trace) => trace.visible === "legendonly").map((trace) => trace.legendgroup));
  const traces = timelineTraces(viewOf(range, _length));
  for (const trace of traces) if (hidden.has(trace.legendgroup)) trace.visible = "legendonly";
  Plotly.react(element, traces, element.layout, { ...CONFIG, ...CONTROLS });
}

// A window's width on either side is within reach of one drag.
function viewOf([from, to], widthPx) {
  const reach = to - from;
  const has = (start, length) => ms(start) <= to + reach && ms(start + length) >= from - reach;
  return { from, to, perMs: widthPx / reach, has };
}

function timelineTraces(view) {
  return [...legendTraces(), ...bubbleTraces(view), ...barTraces(view), ...instantTraces(view), ...markTraces(view), ...labelTraces(view)];
}

function timelineAxes(end, height) {
  const ticks = shownPanels.flatMap((panel) => [
    ...Object.entries(panel.strips).map(([kind, place]) => [place.middle, `${kind}s`]),
    ...panel.rows.map((place, index) => [place.middle, plain(cut(panel.run.rows[index].name))]),
  ]);
  return {
    xaxis: {
      title: { text: "ms from the start of the run", standoff: 4 },
      range: [-0.005 * end, end],
      minallowed: -0.005 * end,
      maxallowed: end,
      exponentformat: "none",
      separatethousands: true,
    },
    yaxis: {
      range: [height, 0],
      fixedrange: true,
      showgrid: false,
      tickvals: ticks.map(([place]) => place),
      ticktext: ticks.map(([, name]) => name),
    },
  };
}

function backgrounds() {
  return shownPanels.flatMap((panel) => panel.rows.map((place) => ({
    type: "rect", xref: "paper", x0: 0, x1: 1, y0: place.top, y1: place.top + place.height,
    fillcolor: "#f4f4f4", line: { width: 0 }, layer: "below",
  })));
}

function heading(panel) {
  const place = { xref: "paper", x: 0, xanchor: "left", y: panel.heading.middle, yanchor: "middle" };
  return { ...place, text: `<b>${plain(panel.title)}</b>`, showarrow: false };
}

function bar(trace, start, length, place, hover) {
  trace.base.push(ms(start));
  trace.x.push(ms(length));
  trace.y.push(place.middle);
  trace.width.push(place.height);
  trace.hovertext.push(hover);
}

function newBars(own) {
  const columns = { base: [], x: [], y: [], width: [], hovertext: [] };
  return { type: "bar", orientation: "h", hovertemplate: "%{hovertext}<extra></extra>", showlegend: false, ...columns, ...own };
}

// The box of a bubble stands behind the streams, which all idle.
function streams(panel) {
  const places = panel.rows.filter((_, index) => panel.run.rows[index].isStream);
  const top = places[0].top, bottom = places.at(-1).top + places.at(-1).height;
  return { top, height: bottom - top, middle: (top + bottom) / 2 };
}

function bubbleTraces(view) {
  const [color, edge] = BUBBLE.legend;
  const trace = newBars({ legendgroup: BUBBLE.word, marker: { color, line: { color: edge, width: 0.5 } } });
  eachBubble(view, (panel, start, length) =>
    bar(trace, start, length, streams(panel), `${BUBBLE.hover}<br>${stretch(start, length)}`));
  return [trace];
}

function eachBubble(view, visit) {
  for (const panel of shownPanels) {
    const { start, length } = panel.run.bubbles;
    start.forEach((at, index) => view.has(at, length[index]) && visit(panel, at, length[index]));
  }
}

function stretch(start, length) {
  if (length === 0) return `at ${written(start)}, takes no time`;
  return `${written(length)}, from ${written(start)} to ${written(start + length)}`;
}

// Where a span stands: its track of its row, or the middle of it.
function placeOf(panel, index) {
  const { row, track, stage } = panel.run.spans;
  const share = ROW / panel.run.rows[row[index]].tracks;
  const top = panel.rows[row[index]].top + track[index] * share;
  return { middle: top + share / 2, height: share * STYLES[stage[index]].height, room: share };
}

function hoverOf(run, index) {
  const { start, length, stage, batch, row } = run.spans;
  const { id, size, tokens, requests } = run.batches;
  const its = batch[index];
  return [
    `<b>${STYLES[stage[index]].word}</b>: ${requests[its]}`,
    `batch ${id[its]}: ${count(size[its], "request")}, ${count(tokens[its], "token")}`,
    stretch(start[index], length[index]),
    plain(run.rows[row[index]].name),
  ].join("<br>");
}

const count = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;

function eachSpan(view, visit) {
  for (const panel of shownPanels) {
    const { start, length } = panel.run.spans;
    start.forEach((at, index) => view.has(at, length[index]) && visit(panel, index));
  }
}

const colorOf = (run, batch, colors) => colors[run.batches.id[batch] % colors.length];

// A trace for each stage and color, as a trace has one hatch.
function barTraces(view) {
  const traces = new Map();
  eachSpan(view, (panel, index) => {
    const { start, length, stage, batch } = panel.run.spans;
    if (length[index] === 0) return;
    const style = STYLES[stage[index]];
    const face = colorOf(panel.run, batch[index], style.faces), edge = colorOf(panel.run, batch[index], style.edges);
    const key = `${stage[index]} ${face} ${edge}`;
    if (!traces.has(key)) traces.set(key, newBars({ legendgroup: style.word, marker: marker(style, face, edge) }));
    bar(traces.get(key), start[index], length[index], placeOf(panel, index), hoverOf(panel.run, index));
  });
  return [...traces.values()];
}

function marker(style, face, edge) {
  const pattern = style.hatch ? { shape: style.hatch, fgcolor: edge, bgcolor: face, size: 6, solidity: 0.1 } : {};
  return { color: face, line: { color: edge, width: 0.5 }, pattern };
}

function legendTraces() {
  const stages = new Set(shownPanels.flatMap((panel) => panel.run.spans.stage));
  const hasBubbles = shownPanels.some((panel) => panel.run.bubbles.start.length > 0);
  const styles = STYLES.filter((_, stage) => stages.has(stage));
  return [...styles, ...(hasBubbles ? [BUBBLE] : [])].map((style) => ({
    ...newBars({ name: style.word, legendgroup: style.word, showlegend: true, marker: marker(style, ...style.legend) }),
    base: [0], x: [null], y: [null], width: [1], hovertext: [""],
  }));
}

// Spans without time, as lines.
function instantTraces(view) {
  const traces = new Map();
  eachSpan(view, (panel, index) => {
    const { start, length, stage, batch } = panel.run.spans;
    if (length[index] > 0) return;
    const style = STYLES[stage[index]];
    if (!traces.has(style.word)) traces.set(style.word, newTicks({ legendgroup: style.word }, ROW_PX * 0.6));
    const color = colorOf(panel.run, batch[index], style.edges);
    tick(traces.get(style.word), start[index], placeOf(panel, index).middle, color, hoverOf(panel.run, index));
  });
  return [...traces.values()];
}

function newTicks(own, size) {
  const marker = { symbol: "line-ns", size, line: { width: 1.6, color: [] } };
  const columns = { x: [], y: [], hovertext: [] };
  return { type: "scatter", mode: "markers", hovertemplate: "%{hovertext}<extra></extra>", showlegend: false, marker, ...columns, ...own };
}

function tick(trace, time, y, color, hover) {
  trace.x.push(ms(time));
  trace.y.push(y);
  trace.marker.line.color.push(color);
  trace.hovertext.push(hover);
}

function markTraces(view) {
  const trace = newTicks({}, 8);
  for (const panel of shownPanels) {
    for (const [kind, place] of Object.entries(panel.strips)) {
      const { time, batch, requests } = panel.run.marks[kind];
      time.forEach((at, index) => view.has(at, 0) &&
        tick(trace, at, place.middle, colorOf(panel.run, batch[index], BATCH_COLORS),
          `<b>${kind}</b>: ${requests[index]}<br>at ${written(at)}`));
    }
  }
  return [trace];
}

// Names and lengths where they have room at this zoom; plotly would measure every bar for it. They stand in traces
// of their own, so that the legend hides them with their bars.
function labelTraces(view) {
  const traces = [...STYLES, BUBBLE].map((style) => newLabels(style.word));
  eachSpan(view, (panel, index) => {
    const { start, length, stage, batch } = panel.run.spans;
    const style = STYLES[stage[index]];
    const place = placeOf(panel, index);
    if (!style.named || place.room * ROW_PX < LABEL_PX) return;
    const color = colorOf(panel.run, batch[index], style.inks);
    label(traces[stage[index]], view, start[index], length[index], place.middle, [panel.run.batches.label[batch[index]]], color);
  });
  eachBubble(view, (panel, start, length) =>
    label(traces.at(-1), view, start, length, streams(panel).middle, [`${rounded(length)} ms`, rounded(length)], BUBBLE.ink));
  return traces;
}

function newLabels(legendgroup) {
  const textfont = { size: LABEL_PX, color: [] };
  return { type: "scatter", mode: "text", x: [], y: [], text: [], textfont, hoverinfo: "skip", showlegend: false, legendgroup };
}

// Write the longest of the texts that fits into the visible part of a bar.
function label(trace, view, start, length, y, texts, color) {
  const left = Math.max(ms(start), view.from), right = Math.min(ms(start + length), view.to);
  const text = texts.find((each) => each.length * LETTER_PX + 2 <= (right - left) * view.perMs);
  if (text === undefined) return;
  trace.x.push((left + right) / 2);
  trace.y.push(y);
  trace.text.push(text);
  trace.textfont.color.push(color);
}
