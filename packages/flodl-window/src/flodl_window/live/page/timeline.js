// How each rank spent its time: lanes of busy, waiting and averaging, painted into uPlot's own canvas and scales.
import { axes, color } from "./charts.js";
import { duration } from "./text.js";

const LANE = 18; // px
const LEAST_LANE = 5;
const SPAN = 60; // s that are shown at most

export class Lanes {
  constructor(root) {
    this.root = root;
    this.rows = [];
    this.ranks = [];
    this.plot = null;
    this.watch = new ResizeObserver(() => this.fit());
    this.watch.observe(root);
  }

  show(doc) {
    const rows = doc.timeline;
    if (!rows.length) return;
    const end = rows[rows.length - 1].t;
    this.rows = rows.filter((row) => row.t > end - SPAN);
    const ranks = [...new Set(this.rows.flatMap((row) => row.rows.map((spent) => spent[0])))].sort((one, other) => one - other);
    const from = Math.max(0, Math.min(...this.rows.map((row) => row.t - row.dt)));
    const data = [[from, end], [0, ranks.length]];
    this.root.setAttribute("role", "img");
    this.root.setAttribute("aria-label", this.words(ranks));
    if (this.plot && ranks.join() === this.ranks.join()) {
      this.plot.setData(data);
      return;
    }
    this.ranks = ranks;
    this.forget();
    const labels = (value) => (Number.isInteger(value - 0.5) && ranks.length - value - 0.5 in ranks ? `rank ${ranks[ranks.length - value - 0.5]}` : "");
    const [x, y] = axes(labels, duration, undefined, 58);
    const step = Math.max(1, Math.ceil(14 / this.lane));
    y.splits = () => ranks.map((_, at) => ranks.length - at - 0.5).filter((_, at) => at % step === 0);
    y.grid = { show: false };
    this.plot = new uPlot(
      {
        width: Math.max(120, this.root.clientWidth - 16),
        height: this.height,
        padding: [4, 20, 0, 0],
        legend: { show: false },
        cursor: { show: false },
        scales: { x: { time: false, range: (_, low, high) => [low, Math.max(high, low + 1)] }, y: { range: [0, Math.max(1, ranks.length)] } },
        axes: [x, y],
        series: [{}, { paths: () => null, points: { show: false } }],
        hooks: { draw: [(plot) => this.paint(plot)] },
      },
      data,
      this.root,
    );
  }

  get lane() {
    return Math.max(LEAST_LANE, Math.min(LANE, Math.floor(520 / Math.max(1, this.ranks.length))));
  }

  get height() {
    return this.ranks.length * this.lane + 32;
  }

  words(ranks) {
    const sums = new Map(ranks.map((rank) => [rank, [0, 0, 0]]));
    for (const row of this.rows) for (const [rank, ...spent] of row.rows) [0, 1, 2].forEach((at) => (sums.get(rank)[at] += spent[at]));
    return [...sums].slice(0, 16).map(([rank, [busy, waiting, averaging]]) => {
      const whole = busy + waiting + averaging || 1;
      return `rank ${rank}: busy ${Math.round((100 * busy) / whole)} %, waiting ${Math.round((100 * waiting) / whole)} %`;
    }).join("; ");
  }

  paint(plot) {
    const { ctx } = plot;
    const { left, top, width, height } = plot.bbox;
    const colors = [color("busy"), color("waiting"), color("averaging")];
    const place = new Map(this.ranks.map((rank, at) => [rank, at]));
    const lane = height / Math.max(1, this.ranks.length);
    const gap = Math.min(lane * 0.22, 3 * devicePixelRatio);
    const per = width / (plot.scales.x.max - plot.scales.x.min || 1);
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    for (const row of this.rows) {
      for (const [rank, ...spent] of row.rows) {
        const whole = spent[0] + spent[1] + spent[2];
        const dt = row.dt || whole;
        const scale = whole > dt && whole > 0 ? dt / whole : 1; // what began before the row is drawn inside it
        let x = left + (row.t - Math.min(dt, whole * scale) - plot.scales.x.min) * per;
        const y = top + place.get(rank) * lane + gap / 2;
        for (const at of [2, 0, 1]) {
          const w = spent[at] * scale * per;
          ctx.fillStyle = colors[at];
          if (w > 0) ctx.fillRect(x, y, Math.max(w, at === 2 ? devicePixelRatio : 0), lane - gap);
          x += w;
        }
      }
    }
    ctx.restore();
  }

  fit() {
    const width = this.root.clientWidth - 16;
    if (this.plot && width > 0 && Math.abs(width - this.plot.width) > 1) this.plot.setSize({ width, height: this.height });
  }

  forget() {
    this.plot?.destroy();
    this.plot = null;
  }
}
