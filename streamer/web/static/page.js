// The live page: events of the daemon in, panels out. Connections that end are made anew.

import { compact, count, element, percent, setText, span } from "./dom.js";
import { History, Lengths, Novelty, Producers } from "./run.js";
import { Coverage, HeatMap, Samples, TopTargets } from "./targets.js";

const RETRY_SECONDS = [1, 2, 5, 10];
// there is an event a second; if the daemon does not answer, one every few seconds
const SILENT_SECONDS = 20;

const statusLine = document.getElementById("status");
let spoken = "";
let state = "";

function say(text, bad = false) {
  // read aloud, so only where it is new
  if (text === spoken) return;
  spoken = text;
  statusLine.textContent = text;
  statusLine.classList.toggle("bad", bad);
}

const panels = [
  new Samples((news) => say(`${state} ${news}`)), new HeatMap(), new Coverage(), new History(),
  new Lengths(), new TopTargets(), new Novelty(), new Producers(),
];

const figures = {};
for (const name of ["reads", "bases", "windows matched", "reads on target", "k-mers", "speed", "waiting", "up"]) {
  figures[name] = element("dd", {}, "–");
  document.getElementById("figures").append(element("div", {}, element("dt", {}, name), figures[name]));
}

function show(fields) {
  const { status, problem, program, gaps, rows } = fields;
  if (rows) {
    setText(document.getElementById("run"), rows.run || "live");
    document.title = `${rows.run || "kmer-streamer"}: live`;
  }
  if (status.totals) {
    const { totals, dictionary, queue } = status;
    const texts = {
      reads: count(totals.reads),
      bases: compact(totals.bases),
      "windows matched": totals.windows ? percent(totals.matches / totals.windows) : "–",
      "reads on target": totals.reads ? percent(totals.reads_on_target / totals.reads) : "–",
      "k-mers": compact(dictionary.kmers),
      speed: `${compact(totals.recent_bases_per_second)} bases/s`,
      waiting: `${count(queue.batches)} batches`,
      up: span(status.uptime_seconds),
    };
    for (const [name, text] of Object.entries(texts)) setText(figures[name], text);
  }
  if (problem) say(`The daemon does not answer: ${problem}`, true);
  else {
    const stuck = Object.entries(status.stuck ?? {}).map(([name, stage]) => `${name} waits for ${stage.waits_for}`);
    const next = `The daemon is ${status.state}${status.revision ? ", revising" : ""}.${stuck.length ? ` No progress: ${stuck.join("; ")}.` : ""}`;
    if (next !== state || statusLine.classList.contains("bad")) say(next, stuck.length > 0 || status.state === "failed");
    state = next;
  }
  const missed = gaps ? `; ${count(gaps)} gaps in what this page heard` : "";
  setText(document.getElementById("program"), `kmer-streamer ${program}, stream epoch ${status.epoch ?? "–"}${missed}`);
  for (const panel of panels) panel.take(fields);
  document.documentElement.dataset.ready = status.state ?? "";
}

let source = null;
let retrying = false;
let tries = 0;
let heard = 0;

function connect() {
  heard = Date.now();
  source = new EventSource("/events");
  const take = (event) => {
    heard = Date.now();
    tries = 0;
    show(JSON.parse(event.data));
  };
  source.addEventListener("everything", take);
  source.addEventListener("tick", take);
  source.addEventListener("error", lose);
}

function disconnect() {
  source?.close();
  source = null;
  document.documentElement.dataset.ready = "";
}

async function lose() {
  disconnect();
  retrying = true;
  say("The connection to the daemon is lost; trying again.", true);
  const wait = RETRY_SECONDS[Math.min(tries, RETRY_SECONDS.length - 1)];
  tries += 1;
  await new Promise((done) => setTimeout(done, 1000 * wait));
  // whether the token is still good
  const signal = AbortSignal.timeout(1000 * SILENT_SECONDS);
  const answer = await fetch("/", { method: "HEAD", signal }).catch(() => null);
  retrying = false;
  if (answer?.status === 401) location.reload();
  else follow();
}

// A browser has six connections to a server: pages that nobody sees leave them to the others.
function follow() {
  if (document.hidden) disconnect();
  else if (!source && !retrying) connect();
}

document.addEventListener("visibilitychange", follow);

// A connection may die without a word: a laptop slept, a network is gone, a process hangs.
setInterval(() => {
  const now = Date.now();
  // the clock may have been set back
  heard = Math.min(heard, now);
  if (source && now - heard > 1000 * SILENT_SECONDS) lose();
}, 1000);

follow();
