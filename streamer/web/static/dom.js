// Elements and numbers. Names of reads, targets, barcodes and producers come from strangers: they
// only ever become text, never HTML.

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (n) => (n === null || n === undefined ? "–" : whole.format(n));
export const compact = (n) => (n === null || n === undefined ? "–" : short.format(n));
export const percent = (part) =>
  part === null || part === undefined ? "–" : `${(100 * part).toFixed(1)} %`;
export const decimal = (n) => (n === null || n === undefined ? "–" : n.toFixed(2));
export const label = (name) => (name === null ? "none" : name);

export function seconds(s) {
  if (s === null || s === undefined) return "–";
  return s < 1 ? `${(1000 * s).toFixed(s < 0.01 ? 1 : 0)} ms` : `${s.toFixed(1)} s`;
}

export function span(s) {
  if (s < 60) return `${Math.floor(s)} s`;
  const minutes = Math.floor(s / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const times = new Intl.DateTimeFormat([], { timeStyle: "medium", hourCycle: "h23" });

export const clock = (time) => times.format(1000 * time);

// A table whose rows are replaced in place; the first cell of a row is its header.
export class Table {
  constructor(caption, columns, { named = true } = {}) {
    this.body = element("tbody");
    const head = element("tr", {}, ...columns.map((name) => element("th", { scope: "col" }, name)));
    this.node = element(
      "table", {}, element("caption", {}, caption), element("thead", {}, head), this.body,
    );
    this.named = named;
  }

  rows(rows) {
    while (this.body.rows.length > rows.length) this.body.deleteRow(-1);
    rows.forEach((cells, at) => {
      let line = this.body.rows[at];
      if (!line) {
        line = this.body.appendChild(element("tr"));
        cells.forEach((_, cell) => {
          const head = cell === 0 && this.named;
          line.append(element(head ? "th" : "td", head ? { scope: "row", class: "name" } : {}));
        });
      }
      cells.forEach((text, cell) => setText(line.cells[cell], String(text)));
    });
  }
}

export function scrolling(title, ...children) {
  return element("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": title }, ...children);
}
