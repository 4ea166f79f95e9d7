// Panels of targets: heat map, top targets, what is enough, coverage along one of them.

import { Chart } from "./chart.js";
import { Table, compact, count, decimal, element, label, percent, scrolling, setText } from "./dom.js";

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

// There is no such panel without a sample sheet.
export class Samples {
  take({ rows }) {
    if (!rows?.samples.length) return;
    if (!this.table) {
      this.note = element("p", { class: "note" });
      this.table = new Table("Samples, those that lack most first", ["sample", "control", "reads", "bases", "with reads", "more needed", "not detected", "detected"]);
      place("map").parentNode.before(element(
        "section", { "aria-labelledby": "h-samples", class: "wide" },
        element("h2", { id: "h-samples" }, "Samples"), this.note, scrolling("Samples", this.table.node),
      ));
    }
    const { samples } = rows;
    const found = samples.filter((row) => row[2] === "negative" && row[6]).map(nameOf);
    const news = found.length ? `Targets are detected in the negative control ${found.join(", ")}. ` : "";
    const rule = samples[0][6] === null ? "Nothing is set as enough: see [panel] in the configuration." : "";
    setText(this.note, `${news}${count(samples.length)} samples. ${rule}`);
    this.table.rows(samples.map((row) => [
      nameOf(row), row[2] ?? "–", count(row[3]), compact(row[4]), count(row[5]), count(row[7]), count(row[8]), count(row[6]),
    ]));
  }
}

export class HeatMap {
  constructor() {
    this.select = element(
      "select", { id: "metric" },
      ...Object.entries(METRICS).map(([name, { title }]) => element("option", { value: name }, title)),
    );
    this.select.addEventListener("change", () => this.show());
    this.note = element("p", { class: "note" });
    this.head = element("tr");
    this.body = element("tbody");
    this.caption = element("caption");
    this.table = element("table", { class: "map" }, this.caption, element("thead", {}, this.head), this.body);
    this.scroll = scrolling("Targets by barcode", this.table);
    place("map").append(
      element("div", { class: "controls" }, element("label", { for: "metric" }, "Colour by"), this.select),
      this.note, this.scroll,
    );
    this.columns = "";
  }

  take({ rows, status }) {
    if (rows) this.rows = rows;
    if (!counted(status)) setText(this.note, NOT_COUNTED);
    else if (rows) this.show();
  }

  show() {
    const { rows } = this;
    if (!rows) return;
    const { of, map, map_targets: targets } = rows;
    const names_of = new Map(rows.samples.map((row) => [row[0], nameOf(row)]));
    const cut = targets.length < of.targets ? `, of ${count(of.targets)} the ${count(targets.length)} with most reads` : "";
    setText(this.note, targets.length ? `${count(map.length)} of ${count(of.barcodes)} barcodes, ${count(targets.length)} targets${cut}. ${rows.complete ? "" : "Kept batches are still being counted. "}A line below a cell: enough.` : "No read has matched a target yet.");
    const metric = METRICS[this.select.value];
    setText(this.caption, `Rows: barcodes. Columns: targets. Values: ${metric.title}${metric === METRICS.breadth ? ", in percent" : ""}.`);
    const names = JSON.stringify(targets);
    if (names !== this.columns) {
      this.columns = names;
      this.head.replaceChildren(
        element("th", { scope: "col" }, "barcode"),
        ...targets.map((name) => element("th", { scope: "col", title: name }, name)),
      );
      this.body.replaceChildren();
    }
    const most = metric.most(...map.flatMap(([, cells]) => cells.map((cell) => cell[metric.at] ?? 0)), 0);
    while (this.body.rows.length > map.length) this.body.deleteRow(-1);
    map.forEach(([barcode, cells], at) => {
      let line = this.body.rows[at];
      if (!line) {
        line = this.body.appendChild(element("tr", {}, element("th", { scope: "row", class: "name" })));
        for (const _ of cells) line.append(element("td"));
      }
      setText(line.cells[0], names_of.get(barcode) ?? label(barcode));
      cells.forEach((cell, column) => {
        const value = cell[metric.at];
        const heat = most && value ? Math.max(1, Math.round((10 * value) / most)) : 0;
        const box = line.cells[column + 1];
        const kind = `h${Math.min(10, heat)}${heat >= 8 ? " hot" : ""}${cell[3] ? " enough" : ""}`;
        const text = metric.text(value);
        const state = `${kind} ${text}`;
        if (box.dataset.state === state) return;
        box.dataset.state = state;
        box.className = kind;
        box.replaceChildren(text);
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

export class Enough {
  constructor(say) {
    this.say = say;
    this.known = null;
    this.note = element("p", { class: "note" });
    this.table = new Table("Targets of which there is enough, by barcode", ["barcode", "enough", "of", "whole groups"]);
    this.scroll = scrolling("Enough", this.table.node);
    place("enough").append(this.note, this.scroll);
    this.scroll.hidden = true;
  }

  take({ rows, status }) {
    if (!counted(status)) setText(this.note, NOT_COUNTED);
    else if (rows) {
      const { enough } = rows;
      this.scroll.hidden = !enough;
      if (!enough) {
        setText(this.note, "Nothing is set as enough: see [panel] in the configuration.");
        return;
      }
      const limits = [
        enough.limits.breadth && `breadth ${percent(enough.limits.breadth)}`,
        enough.limits.depth && `depth ${enough.limits.depth}`,
        enough.limits.reads && `${count(enough.limits.reads)} reads`,
        enough.limits.windows && `${count(enough.limits.windows)} windows`,
        enough.limits.control_factor && `more than ${enough.limits.control_factor} times the reads of each negative control`,
      ].filter(Boolean).join(", ");
      const total = enough.rows.reduce((sum, row) => sum + row[1], 0);
      setText(this.note, `Enough is: ${limits}. Reached ${count(total)} times.`);
      this.table.rows(enough.rows.map(([barcode, reached, groups]) => [
        label(barcode), count(reached), count(enough.watched), groups.join(", ") || "–",
      ]));
      if (this.known !== null && total > this.known) this.say(`Enough of ${count(total)} targets and barcodes.`);
      this.known = total;
    }
  }
}

export class Coverage {
  constructor() {
    this.names = element("datalist", { id: "targets" });
    this.input = element("input", { id: "target", list: "targets", autocomplete: "off", spellcheck: "false" });
    this.problem = element("p", { class: "note", role: "status" });
    const form = element(
      "form", { class: "controls" }, element("label", { for: "target" }, "Target"), this.input,
      element("button", {}, "Show"), this.names,
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
      const listed = JSON.stringify([...names].sort());
      if (listed !== this.listed) {
        this.listed = listed;
        this.names.replaceChildren(...names.map((name) => element("option", { value: name })));
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
      const answer = await fetch(`/coverage?${new URLSearchParams({ target, bins: 200 })}`);
      const found = await answer.json();
      // another one may have been asked for meanwhile
      if (target !== this.target) return;
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
      `${target}: ${percent(ratio(seen, kmers))} of ${count(kmers)} windows seen, over ${count(used.at(-1)?.[1] ?? 0)} bases.`,
    );
  }
}
