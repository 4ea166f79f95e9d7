// A chart with uPlot, a sentence that says what it shows, and the table behind it.

import { Table, clock, element, scrolling, setText } from "./dom.js";

const HEIGHT = 200;
const dark = matchMedia("(prefers-color-scheme: dark)");

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export class Chart {
  // series: {name, format, bars?, stepped?}, the second on the right axis if it has one of its own
  constructor(place, { title, x, series, time = false, shared = false, columns, row }) {
    this.options = { title, x, series, time, shared };
    this.row = row;
    this.data = null;
    this.canvas = element("div", { class: "chart", role: "img", "aria-label": title });
    this.said = element("p", { class: "note" });
    const key = element(
      "ul", { class: "key" },
      ...series.map(({ name }, at) => element("li", { class: at ? "second" : "first" }, name)),
    );
    this.table = new Table(title, columns);
    this.details = element(
      "details", {}, element("summary", {}, "Table"), scrolling(`${title}: table`, this.table.node),
    );
    this.details.addEventListener("toggle", () => this.fill());
    place.append(key, this.canvas, this.said, this.details);
    new ResizeObserver(() => this.resize()).observe(this.canvas);
    dark.addEventListener("change", () => this.draw());
  }

  show(data, sentence) {
    this.data = data;
    setText(this.said, sentence);
    this.canvas.setAttribute("aria-label", `${this.options.title}. ${sentence}`);
    if (this.plot && data[0].length) this.plot.setData(data);
    else this.draw();
    this.fill();
  }

  fill() {
    if (!this.details.open || !this.data) return;
    const most = 100;
    const points = this.data[0].length;
    const step = Math.max(1, Math.ceil(points / most));
    const rows = [];
    for (let at = points - 1; at >= 0; at -= step) rows.push(this.row(this.data, at));
    this.table.rows(rows.reverse());
  }

  resize() {
    const width = this.canvas.clientWidth;
    if (this.plot && width && width !== this.width) {
      this.width = width;
      this.plot.setSize({ width, height: HEIGHT });
    }
  }

  draw() {
    this.plot?.destroy();
    this.plot = null;
    if (!this.data || !this.data[0].length) return;
    const { x, series, time, shared } = this.options;
    this.width = this.canvas.clientWidth || 300;
    const text = color("--soft");
    const lines = { stroke: color("--grid"), width: 1 };
    const axis = { stroke: text, grid: lines, ticks: lines, font: "12px system-ui, sans-serif" };
    const both = series.length > 1 && !shared;
    this.plot = new uPlot(
      {
        width: this.width,
        height: HEIGHT,
        legend: { show: false },
        cursor: { show: false },
        scales: {
          x: { time, range: series[0].bars ? (u, low, high) => [low - 0.6, high + 0.6] : undefined },
          y: { range: (u, low, high) => [0, high > 0 ? 1.05 * high : 1] },
          z: { range: (u, low, high) => [0, high > 0 ? 1.05 * high : 1] },
        },
        axes: [
          { ...axis, space: 80, values: (u, splits) => splits.map(time ? clock : x) },
          { ...axis, size: 60, values: (u, splits) => splits.map(series[0].format) },
          ...(both
            ? [{ ...axis, scale: "z", side: 1, size: 60, grid: { show: false },
                 values: (u, splits) => splits.map(series[1].format) }]
            : []),
        ],
        series: [
          {},
          ...series.map(({ bars, stepped }, at) => ({
            scale: at && both ? "z" : "y",
            stroke: color(at ? "--two" : "--one"),
            fill: bars ? color("--one") : undefined,
            width: bars ? 0 : 2,
            dash: at ? [6, 4] : undefined,
            points: { show: !bars && this.data[0].length < 2 },
            spanGaps: false,
            paths: bars ? uPlot.paths.bars({ size: [0.9, 60] })
              : stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
          })),
        ],
      },
      this.data,
      this.canvas,
    );
  }
}
