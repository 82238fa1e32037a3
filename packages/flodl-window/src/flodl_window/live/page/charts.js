// Charts by uPlot (the global of vendor/uplot): lines over the run's time. They draw from the document of /history.json.
import { bytes, duration, el, figure, isolated, percent, rate } from "./text.js";
import { newest } from "./store.js";

const SERIES = 8;
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3]];
const FEW = 8; // lines that get a legend; more are drawn thin, and the caption says how they lie
const MOST_HOSTS = 24;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400, 604800]; // s between two marks

export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export function font() {
  return '11px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
}

/** Whole steps from `low` to `high`, at most `most`. */
function marksBetween(low, high, most, steps) {
  const step = steps.find((each) => (high - low) / each <= most) ?? steps[steps.length - 1];
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.max(0, Math.floor(high / step) - first + 1) }, (_, at) => (first + at) * step);
}

/** uPlot's axes in the page's clothes; `format` writes the y axis, `x` the other. */
export function axes(format, x = duration, steps = STEPS, size = 46) {
  const plain = { stroke: color("soft"), font: font(), ticks: { show: false }, grid: { stroke: color("grid"), width: 1 } };
  return [
    { ...plain, grid: { show: false }, size: 24, splits: (plot, _, low, high) => marksBetween(low, high, plot.width / 70, steps), values: (_, splits) => splits.map((value) => (value === null ? "" : x(value))) },
    { ...plain, size, space: 26, values: (_, splits) => splits.map((value) => (value === null ? "" : format(value))) },
  ];
}

/** A figure with a caption, a plot that fills it, and words for those who do not see it. */
export class Chart {
  constructor(title, { height = 190, ...options }) {
    this.options = options;
    this.height = height;
    this.last = el("span", { class: "last" });
    this.box = el("div", { class: "plot" });
    this.element = el("figure", { role: "group" }, el("figcaption", {}, el("strong", {}, title), this.last), this.box);
    this.title = title;
    this.names = null;
    this.plot = null;
    this.waiting = null;
    this.watch = new ResizeObserver(() => this.fit());
    this.watch.observe(this.box);
  }

  /** `series`: [{label, color, dash, …}] with `data` = [x, …columns]; `words` say the newest. */
  show(series, data, words) {
    this.last.textContent = words;
    this.box.setAttribute("role", "img");
    this.box.setAttribute("aria-label", `${this.title}: ${words}`);
    this.waiting = [series, data];
    if (!this.options.patient) this.draw();
  }

  /** What `show` was given last, drawn now. */
  draw() {
    const [series, data] = this.waiting;
    this.waiting = null;
    const names = JSON.stringify(series.map((each) => each.label));
    if (this.plot && names === this.names) {
      this.plot.setData(data);
      return;
    }
    this.forget();
    this.names = names;
    this.series = series;
    this.make(data);
  }

  make(data) {
    const many = this.series.length > FEW;
    const { format = figure, x = duration, range, spanGaps = true, points = false } = this.options;
    const drawn = this.series.map((each, at) => ({
      label: each.label,
      stroke: color(each.color ?? `s${at % SERIES}`),
      width: many ? 0.8 : 1.5,
      dash: each.dash ?? (many ? [] : DASHES[Math.floor(at / SERIES) % DASHES.length]),
      spanGaps,
      alpha: many ? 0.6 : 1,
      points: { show: each.points ?? points, size: 5 },
      paths: each.dots ? () => null : undefined,
      value: (_, value) => (value === null || value === undefined ? "" : format(value)),
    }));
    this.plot = new uPlot(
      {
        width: Math.max(120, this.box.clientWidth),
        height: this.height,
        padding: [8, 20, 0, 0],
        cursor: { y: false, drag: { x: true, y: false }, points: { show: !many } },
        legend: { show: !many && this.series.length > 1, live: true },
        scales: { x: { time: false }, y: range ? { range } : {} },
        axes: axes(format, x, this.options.xLabel ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] : STEPS),
        series: [{ label: this.options.xLabel ?? "time", value: (_, value) => (value === null || value === undefined ? "" : x(value)) }, ...drawn],
      },
      data,
      this.box,
    );
  }

  fit() {
    const width = this.box.clientWidth;
    if (this.plot && width && Math.abs(width - this.plot.width) > 1) this.plot.setSize({ width, height: this.height });
  }

  forget() {
    this.plot?.destroy();
    this.plot = null;
    this.names = null;
  }
}

/** Charts in `root`, as many as there is something to draw for. `patient` ones wait for `draw`, one at a time. */
export class Charts {
  constructor(root, { patient = false } = {}) {
    this.root = root;
    this.patient = patient;
    this.charts = new Map();
  }

  chart(key, title, options) {
    let chart = this.charts.get(key);
    if (!chart) {
      chart = new Chart(title, { ...options, patient: this.patient });
      this.charts.set(key, chart);
      this.root.append(chart.element);
    }
    return chart;
  }

  *draw() {
    for (const chart of this.charts.values()) {
      if (!chart.waiting) continue;
      chart.draw();
      yield;
    }
  }

  restyle() {
    for (const chart of this.charts.values()) chart.forget();
  }

  clear() {
    for (const chart of this.charts.values()) {
      chart.watch.disconnect();
      chart.forget();
    }
    this.charts.clear();
    this.root.replaceChildren();
  }
}

const share = (_, low, high) => [0, Math.max(1, high ?? 1)];
const fromZero = (_, low, high) => [0, (high ?? 1) * 1.08 || 1];

/** Loss, evaluation, samples per second, balance. */
export function drawTraining(charts, doc) {
  const { totals, ranks, epochs } = doc;
  const loss = totals.loss || [];
  const ended = epochs.loss || [];
  if (loss.some((value) => value !== null) || ended.some((value) => value !== null)) {
    const data = uPlot.join([[totals.t, totals.t.map((_, at) => loss[at] ?? null)], [epochs.t, epochs.t.map((_, at) => ended[at] ?? null)]]);
    charts.chart("loss", "Loss", {}).show(
      [{ label: "so far in its epoch" }, { label: "of whole epochs", color: "s1", points: true }], data, figure(newest(ended) ?? newest(loss)));
  }
  const metrics = Object.entries(epochs.eval || {});
  if (metrics.length) {
    const numbers = epochs.epoch.map((epoch) => epoch + 1);
    charts.chart("eval", "Evaluation of the averaged model", { x: (epoch) => (Number.isInteger(epoch) ? `${epoch}` : ""), xLabel: "epoch", points: true }).show(
      metrics.map(([name]) => ({ label: isolated(name) })), [numbers, ...metrics.map(([, column]) => column)],
      metrics.slice(0, 3).map(([name, column]) => `${isolated(name.slice(0, 40))} ${figure(newest(column))}`).join(", "));
  }
  const rates = Object.keys(ranks.rate).sort((one, other) => one - other);
  if (rates.length) {
    const now = rates.map((rank) => newest(ranks.rate[rank])).filter((value) => value !== null).sort((one, other) => one - other);
    const words = rates.length > FEW
      ? `${rates.length} ranks: ${rate(now[0] ?? 0)} to ${rate(now[now.length - 1] ?? 0)}, median ${rate(now[now.length >> 1] ?? 0)}`
      : now.length ? `${rate(now.reduce((sum, value) => sum + value, 0))} while all are busy` : "";
    charts.chart("rates", "Samples per busy second, by rank", { range: fromZero, format: rate }).show(
      rates.map((rank) => ({ label: `rank ${rank}` })), [ranks.t, ...rates.map((rank) => ranks.rate[rank])], words);
  }
  if (totals.t.length) {
    charts.chart("total", "Samples per second, together", { range: fromZero, format: rate }).show(
      [{ label: "samples/s" }], [totals.t, totals.samples_per_s || []], rate(newest(totals.samples_per_s) ?? 0));
    if (rates.length > 1) {
      charts.chart("balance", "Balance, and share of averaging", { range: share, format: percent }).show(
        [{ label: "balance" }, { label: "averaging", color: "s1", dash: [6, 3] }], [totals.t, totals.balance || [], totals.sync_share || []],
        `balance ${figure(newest(totals.balance))}, averaging ${percent(newest(totals.sync_share))}`);
    }
  }
}

/** Two small charts a host: shares of processor, memory and GPUs; bytes on the network. */
export function drawHosts(charts, doc) {
  for (const [host, load] of Object.entries(doc.hosts).slice(0, MOST_HOSTS)) {
    const cards = Object.keys(load).filter((name) => /^gpu\d+$/.test(name)).sort((one, other) => one.slice(3) - other.slice(3));
    const busy = cards.map((card) => ({ label: `GPU ${card.slice(3)}` }));
    const gpus = cards.length ? `, GPUs ${cards.map((card) => percent(newest(load[card]))).join(" ")}` : "";
    charts.chart(`load ${host}`, isolated(host), { height: 120, range: share, format: percent }).show(
      [{ label: "CPU" }, { label: "memory", color: "s4", dash: [6, 3] }, ...busy],
      [load.t, load.cpu || [], load.memory || [], ...cards.map((card) => load[card])],
      `CPU ${percent(newest(load.cpu))}, memory ${percent(newest(load.memory))}${gpus}`);
    charts.chart(`net ${host}`, `${isolated(host)}: network`, { height: 120, range: fromZero, format: bytes }).show(
      [{ label: "in" }, { label: "out", color: "s1", dash: [6, 3] }], [load.t, load.rx || [], load.tx || []],
      `in ${bytes(newest(load.rx))}/s, out ${bytes(newest(load.tx))}/s`);
  }
}
