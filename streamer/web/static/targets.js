// Panels of targets: samples, heat map, top targets, coverage along one of them.

import { Chart } from "./chart.js";
import { Table, compact, count, decimal, element, label, percent, scrolling, setText, span } from "./dom.js";

const place = (id) => document.getElementById(id);
const NOT_COUNTED = "Not counted: set answers.targets = true in the configuration.";
const COVERAGE_SECONDS = 5;

const counted = (status) => !status.published || status.published.includes("targets.");

const METRICS = {
  breadth: { at: 1, title: "breadth: part of the k-mers seen", most: () => 1, text: (v) => (v === null ? "" : (100 * v).toFixed(0)) },
  depth: { at: 2, title: "depth: matches a k-mer", most: Math.max, text: (v) => (v === null ? "" : v < 10 ? v.toFixed(1) : compact(v)) },
  reads: { at: 0, title: "reads", most: Math.max, text: (v) => compact(v) },
};

const nameOf = (row) => (row[1] === row[0] ? label(row[0]) : `${row[1]} (${row[0]})`);

export class Samples {
  constructor(say) {
    this.say = say;
    this.known = null;
    this.note = element("p", { class: "note" });
    this.alarms = element("p", { class: "alarm", hidden: true });
    this.table = new Table("Samples, those that lack most first", ["sample", "more needed", "not detected", "detected", "enough in", "reads", "bases", "with reads", "whole groups"]);
    this.scroll = scrolling("Samples", this.table.node);
    place("samples").append(this.alarms, this.note, this.scroll);
  }

  take({ rows, status }) {
    this.scroll.hidden = !counted(status);
    if (!counted(status)) setText(this.note, NOT_COUNTED);
    else if (rows) {
      const { samples, alarms, rule, of } = rows;
      setText(this.alarms, alarms.map((line) => `Note: ${line}.`).join("\n"));
      this.alarms.hidden = !alarms.length;
      const cut = samples.length < of.barcodes ? ` of ${count(of.barcodes)}` : "";
      setText(this.note, `${count(samples.length)}${cut} samples, ${count(rows.watched)} targets with a verdict. ${rule ? `The rule: ${rule}.` : "Nothing is set as enough: see [panel] in the configuration."}`);
      this.table.rows(samples.map((row) => [
        `${nameOf(row)}${row[2] ? `, ${row[2]} control` : ""}`, count(row[7]), count(row[8]), count(row[6]), row[11] === null ? "–" : span(row[11]),
        count(row[3]), compact(row[4]), count(row[5]), row[10].join(", ") || "–",
      ]));
      const total = samples.reduce((sum, row) => sum + (row[6] ?? 0), 0);
      if (this.known !== null && total > this.known) this.say(`Enough of ${count(total)} targets and barcodes.`);
      this.known = total;
    }
  }
}

// A cell without a read has no colour: neighbours may share its k-mers.
const colored = (cell, metric, most) => (most && cell[0] && cell[metric.at] ? Math.max(1, Math.round((10 * cell[metric.at]) / most)) : 0);
const MOST_READABLE = 24;

export class HeatMap {
  constructor() {
    const choice = (id, options) => element("select", { id }, ...options.map(([value, text]) => element("option", { value }, text)));
    this.metric = choice("metric", Object.entries(METRICS).map(([name, { title }]) => [name, title]));
    this.order = choice("order", [["panel", "as in the panel"], ["worst", "the worst first"]]);
    this.filter = element("input", { id: "filter", type: "search", autocomplete: "off", spellcheck: "false" });
    this.note = element("p", { class: "note" });
    this.groups = element("tr", { class: "groups" });
    this.head = element("tr");
    this.body = element("tbody");
    this.caption = element("caption");
    this.table = element("table", { class: "map" }, this.caption, element("thead", {}, this.groups, this.head), this.body);
    this.scroll = scrolling("Targets by barcode", this.table);
    const controls = [["Colour by", this.metric], ["Order", this.order], ["Filter", this.filter]].map(([text, box]) => element("span", {}, element("label", { for: box.id }, text), " ", box));
    place("map").append(element("div", { class: "controls" }, ...controls), this.note, this.scroll);
    for (const box of [this.metric, this.order, this.filter]) box.addEventListener("input", () => this.show());
    this.columns = "";
  }

  take({ rows, status }) {
    if (rows) this.rows = rows;
    if (!counted(status)) setText(this.note, NOT_COUNTED);
    else if (rows) this.show();
  }

  // The numbers of the columns that the filter lets through, in order.
  chosen() {
    const { map, map_targets: targets, map_groups: groups } = this.rows;
    const wanted = this.filter.value.toLowerCase();
    const found = [...targets.keys()].filter((at) => `${targets[at]} ${groups[at] ?? ""}`.toLowerCase().includes(wanted));
    const worth = (at) => map.reduce((sum, [, cells]) => sum + 1e6 * cells[at][3] + (cells[at][0] ? cells[at][1] ?? 0 : 0), 0);
    return this.order.value === "worst" ? found.sort((one, other) => worth(one) - worth(other)) : found;
  }

  heads(chosen) {
    const { map_targets: targets, map_groups: groups } = this.rows;
    const spans = [];
    for (const at of this.order.value === "panel" ? chosen : []) {
      if (spans.length && spans.at(-1)[0] === groups[at]) spans.at(-1)[1] += 1;
      else spans.push([groups[at], 1]);
    }
    const grouped = spans.some(([, width]) => width > 1) && groups.some(Boolean);
    this.groups.replaceChildren(...(grouped ? [["group", 1], ...spans].map(([name, width]) => element("th", { colspan: width, scope: width > 1 ? "colgroup" : "col", title: name }, name ?? "–")) : []));
    this.head.replaceChildren(
      element("th", { scope: "col" }, "sample"),
      ...chosen.map((at) => element("th", { scope: "col", title: targets[at] }, element("span", {}, targets[at]))),
    );
    this.body.replaceChildren();
  }

  show() {
    const { rows } = this;
    if (!rows) return;
    const { of, map, map_targets: targets } = rows;
    const names_of = new Map(rows.samples.map((row) => [row[0], nameOf(row)]));
    const chosen = this.chosen();
    const cut = targets.length < of.targets ? `, of ${count(of.targets)} the ${count(targets.length)} ${rows.rule ? "that most samples lack" : "with most reads"}` : "";
    setText(this.note, targets.length ? `${count(map.length)} of ${count(of.barcodes)} samples, ${count(chosen.length)} targets${cut}. ${rows.complete ? "" : "Kept batches are still being counted. "}A line below a cell: enough. No colour: no read.` : "No read has matched a target yet.");
    const metric = METRICS[this.metric.value];
    setText(this.caption, `Rows: samples. Columns: targets. Values: ${metric.title}${metric === METRICS.breadth ? ", in percent" : ""}.`);
    this.table.classList.toggle("dense", chosen.length > MOST_READABLE);
    const names = JSON.stringify([chosen.map((at) => targets[at]), this.order.value]);
    if (names !== this.columns) {
      this.columns = names;
      this.heads(chosen);
    }
    const most = metric.most(...map.flatMap(([, cells]) => cells.map((cell) => cell[metric.at] ?? 0)), 0);
    while (this.body.rows.length > map.length) this.body.deleteRow(-1);
    map.forEach(([barcode, cells], at) => {
      let line = this.body.rows[at];
      if (!line) {
        line = this.body.appendChild(element("tr", {}, element("th", { scope: "row", class: "name" })));
        for (const _ of chosen) line.append(element("td"));
      }
      setText(line.cells[0], names_of.get(barcode) ?? label(barcode));
      chosen.forEach((number, column) => {
        const cell = cells[number];
        const heat = colored(cell, metric, most);
        const box = line.cells[column + 1];
        const kind = `h${Math.min(10, heat)}${heat >= 8 ? " hot" : ""}${cell[3] ? " enough" : ""}`;
        const text = metric.text(cell[metric.at]);
        const state = `${kind} ${text}`;
        if (box.dataset.state === state) return;
        box.dataset.state = state;
        box.className = kind;
        box.replaceChildren(element("span", {}, text));
        if (cell[3]) box.append(element("span", { class: "hidden" }, " enough"));
      });
    });
  }
}

export class TopTargets {
  constructor() {
    this.note = element("p", { class: "note" });
    this.table = new Table("Targets with the most reads", ["target", "reads", "bases", "matches", "breadth", "depth"]);
    place("top").append(this.note, scrolling("Top targets", this.table.node));
  }

  take({ rows, status }) {
    if (!counted(status)) setText(this.note, NOT_COUNTED);
    else if (rows) {
      const shown = rows.targets.slice(0, 50);
      const without = rows.unassigned ? `, ${count(rows.unassigned[1])} reads unassigned` : "";
      setText(this.note, `${count(shown.length)} of ${count(rows.of.targets)} targets${without}.`);
      this.table.rows(shown.map(([name, reads, bases, matches, , , breadth, depth]) => [
        label(name), count(reads), count(bases), count(matches), percent(breadth), decimal(depth),
      ]));
    }
  }
}

export class Coverage {
  constructor() {
    this.names = element("datalist", { id: "targets" });
    this.input = element("input", { id: "target", list: "targets", autocomplete: "off", spellcheck: "false" });
    this.problem = element("p", { class: "note", role: "status" });
    this.sample = element("select", { id: "sample" }, element("option", { value: "" }, "all"));
    const form = element(
      "form", { class: "controls" }, element("label", { for: "target" }, "Target"), this.input,
      element("label", { for: "sample" }, "Sample"), this.sample, element("button", {}, "Show"), this.names,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask(this.input.value);
    });
    place("coverage").append(form, this.problem);
    this.target = "";
    this.asked = 0;
    this.changed = false;
    this.listed = "";
  }

  take({ rows, status }) {
    if (!counted(status)) {
      setText(this.problem, NOT_COUNTED);
      return;
    }
    if (rows) {
      this.changed = true;
      const names = rows.targets.map((row) => row[0]);
      const samples = rows.samples.filter((row) => row[0] !== null);
      const listed = JSON.stringify([[...names].sort(), samples.map(nameOf).sort()]);
      if (listed !== this.listed) {
        this.listed = listed;
        this.names.replaceChildren(...names.map((name) => element("option", { value: name })));
        const barcode = this.sample.value;
        this.sample.replaceChildren(this.sample.options[0], ...samples.map((row) => element("option", { value: row[0] }, nameOf(row))));
        this.sample.value = barcode;
      }
      if (!this.target && names.length && rows.targets[0][3] > 0) {
        this.input.value = names[0];
        this.target = names[0];
      }
    }
    const due = Date.now() - this.asked > 1000 * COVERAGE_SECONDS;
    if (this.changed && this.target && due && !document.hidden) this.ask(this.target);
  }

  async ask(target) {
    this.target = target;
    this.asked = Date.now();
    this.changed = false;
    try {
      const barcode = this.sample.value;
      const answer = await fetch(`/coverage?${new URLSearchParams({ target, bins: 200, ...(barcode && { barcode }) })}`);
      const found = await answer.json();
      // another one may have been asked for meanwhile
      if (target !== this.target || barcode !== this.sample.value) return;
      setText(this.problem, found.problem ?? "");
      if (found.rows) this.show(found);
    } catch {
      this.changed = true;
    }
  }

  show({ target, rows }) {
    this.chart ??= new Chart(place("coverage"), {
      title: "Coverage along the target", x: compact, columns: ["from base", "seen", "depth"],
      series: [{ name: "part of the k-mers seen", format: (v) => `${Math.round(100 * v)} %`, stepped: true }, { name: "depth (right)", format: compact, stepped: true }],
      row: (data, at) => [count(data[0][at]), percent(data[1][at]), decimal(data[2][at])],
    });
    const used = rows.filter((row) => row[1] > row[0]);
    const ratio = (part, all) => (all ? part / all : null);
    const kmers = used.reduce((sum, row) => sum + row[2], 0);
    const seen = used.reduce((sum, row) => sum + row[3], 0);
    this.chart.show(
      [used.map((row) => row[0]), used.map((row) => ratio(row[3], row[2])), used.map((row) => ratio(row[4], row[2]))],
      `${target}, ${this.sample.selectedOptions[0].value ? this.sample.selectedOptions[0].textContent : "all samples"}: ${percent(ratio(seen, kmers))} of ${count(kmers)} windows seen, over ${count(used.at(-1)?.[1] ?? 0)} bases.`,
    );
  }
}
