// Panels of the run as a whole: reads and bases, throughput, latency, lengths, novelty, producers.

import { Chart } from "./chart.js";
import { Table, clock, compact, count, decimal, element, percent, scrolling, seconds, setText } from "./dom.js";

const place = (id) => document.getElementById(id);
// of a point of the history
const [TIME, READS, BASES, WAITING, P50, P99] = [0, 1, 2, 3, 4, 5];

export class History {
  constructor() {
    this.points = [];
    this.total = new Chart(place("yield"), {
      title: "Reads and bases over time", time: true, columns: ["time", "bases", "reads"],
      series: [{ name: "bases", format: compact }, { name: "reads (right)", format: compact }],
      row: (data, at) => [clock(data[0][at]), count(data[1][at]), count(data[2][at])],
    });
    this.speed = new Chart(place("speed"), {
      title: "Bases a second over time", time: true, columns: ["time", "bases a second", "bytes waiting"],
      series: [{ name: "bases a second", format: compact }, { name: "bytes waiting (right)", format: compact }],
      row: (data, at) => [clock(data[0][at]), count(data[1][at]), count(data[2][at])],
    });
    this.latency = new Chart(place("latency"), {
      title: "From acceptance to publication of a batch", time: true, shared: true,
      columns: ["time", "median", "99 %"],
      series: [{ name: "median", format: seconds }, { name: "99 % of the batches", format: seconds }],
      row: (data, at) => [clock(data[0][at]), seconds(data[1][at]), seconds(data[2][at])],
    });
  }

  take(fields) {
    if (fields.history) this.points = fields.history;
    if (fields.point) {
      const last = this.points.at(-1);
      if (last && (fields.replaces || last[TIME] === fields.point[TIME])) this.points.pop();
      this.points.push(fields.point);
    }
    if (fields.history || fields.point) this.show(fields.began);
  }

  // began: when the clock of the points was 0
  show(began) {
    const column = (at) => this.points.map((point) => point[at]);
    const times = this.points.map((point) => began + point[TIME]);
    const last = this.points.at(-1);
    if (!last) return;
    this.total.show([times, column(BASES), column(READS)], `${count(last[READS])} reads, ${count(last[BASES])} bases.`);
    const speed = this.points.map((point, at) => {
      const before = this.points[at - 1];
      return before ? Math.max(0, (point[BASES] - before[BASES]) / (point[TIME] - before[TIME])) : null;
    });
    this.speed.show([times, speed, column(WAITING)], `${compact(speed.at(-1))} bases a second, ${compact(last[WAITING])} bytes wait.`);
    const measured = this.points.findLast((point) => point[P99] !== null);
    this.latency.show(
      [times, column(P50), column(P99)],
      measured
        ? `At ${clock(began + measured[TIME])}: median ${seconds(measured[P50])}, 99 % within ${seconds(measured[P99])}.`
        : "No batch has been published since the page began.",
    );
  }
}

export class Lengths {
  constructor() {
    this.edges = [];
    this.chart = new Chart(place("lengths"), {
      title: "Reads by length", columns: ["from base", "reads", "bases"],
      series: [{ name: "reads", format: compact, bars: true }],
      x: (bin) => (Number.isInteger(bin) ? compact(this.edges[bin]) : ""),
      row: (data, at) => [count(this.edges[data[0][at]]), count(data[1][at]), count(this.bases[data[0][at]])],
    });
  }

  take({ lengths, status }) {
    if (!lengths) return;
    this.edges = lengths.edges;
    this.bases = lengths.bases;
    const first = lengths.reads.findIndex((n) => n > 0);
    const last = lengths.reads.findLastIndex((n) => n > 0);
    const bins = [];
    for (let bin = first; first >= 0 && bin <= last; bin += 1) bins.push(bin);
    const reads = lengths.reads.reduce((sum, n) => sum + n, 0);
    const bases = lengths.bases.reduce((sum, n) => sum + n, 0);
    const of = status.totals ? ` of ${count(status.totals.reads)}` : "";
    this.chart.show(
      [bins, bins.map((bin) => lengths.reads[bin])],
      reads ? `${count(reads)}${of} reads seen here, mean ${count(bases / reads)} bases.` : "No read yet.",
    );
  }
}

export class Novelty {
  constructor() {
    this.chart = null;
    this.note = place("novelty").appendChild(element("p", { class: "note" }));
  }

  take({ novelty, status }) {
    const grows = !status.published || status.published.includes("novelty.");
    setText(this.note, grows ? "" : "The dictionary learns nothing from reads: dictionary.mode is frozen.");
    if (!novelty || !grows) return;
    this.chart ??= new Chart(place("novelty"), {
      title: "New k-mers against bases", x: compact, columns: ["bases", "k-mers so far", "new a base"],
      series: [{ name: "k-mers so far", format: compact }, { name: "new a base (right)", format: decimal }],
      row: (data, at) => [count(data[0][at]), count(data[1][at]), decimal(data[2][at])],
    });
    const rates = novelty.map((point, at) => {
      const before = novelty[at - 1] ?? [0, 0, 0];
      return point[1] > before[1] ? (point[2] - before[2]) / (point[1] - before[1]) : null;
    });
    const last = novelty.at(-1);
    this.chart.show(
      [novelty.map((point) => point[1]), novelty.map((point) => point[2]), rates],
      last ? `${count(last[2])} new k-mers in ${count(last[1])} bases, lately ${percent(rates.at(-1))} of the bases.` : "No read yet.",
    );
  }
}

export class Producers {
  constructor() {
    this.note = element("p", { class: "note" });
    this.table = new Table("Producers seen here, the last to send first", ["producer", "batches", "reads", "bases", "last batch"]);
    place("producers").append(this.note, scrolling("Producers", this.table.node));
    this.rows = [];
  }

  take({ producers, status, now }) {
    if (producers) this.rows = producers;
    if (status.producers) {
      setText(this.note, `${count(status.producers.active)} active, ${count(status.producers.known)} known; ${count(status.refused)} messages refused.`);
    }
    this.table.rows(
      this.rows.map(([name, batches, reads, bases, time]) => [
        name, count(batches), count(reads), count(bases), `${count(Math.max(0, now - time))} s ago`,
      ]),
    );
  }
}
