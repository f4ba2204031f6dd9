"use strict";
// What the other scripts share: the data in the page, names as they are shown, and how plotly is set up.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const CONFIG = { responsive: true, displaylogo: false, displayModeBar: "hover", modeBarButtons: [["toImage", "resetScale2d"]] };

// plotly reads some tags in text; names are to be shown as they are.
const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const caseName = (it) => `${it.experiment}/${it.scheduler}`;
const numDevices = new Set(data.cases.map((it) => it.device)).size;
const caseTitle = (it) => caseName(it) + (numDevices > 1 ? ` on ${it.device}` : "");

function layout(own) {
  const axis = { gridcolor: "#eaeef2", linecolor: "#8c959f", automargin: true, zeroline: false };
  return {
    font: { family: "system-ui, sans-serif", size: 12, color: "#1f2328" },
    margin: { l: 55, r: 15, t: 15, b: 45 },
    hovermode: "closest",
    showlegend: true,
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
    ...own,
    xaxis: { ...axis, ...own.xaxis },
    yaxis: { ...axis, ...own.yaxis },
  };
}
