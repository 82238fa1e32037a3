// What this page knows of the run: the document of /history.json, kept up to date by news, bounded like it.

const MOST_POINTS = 1440;
const MOST_ROWS = 160;
const MOST_LINES = 200;
const MOST_MARKS = 200;

export function emptyDocument() {
  return { run: "", mode: "", now: 0, totals: { t: [] }, ranks: { t: [], rate: {} }, epochs: { t: [], epoch: [], eval: {} }, timeline: [], hosts: {}, tails: {}, marks: [], state: null };
}

/** `object[name]`, made when it is not there: a host or a metric may be called "constructor" or "__proto__". */
function own(object, name, make) {
  if (!Object.hasOwn(object, name)) Object.defineProperty(object, name, { value: make(), enumerable: true, writable: true, configurable: true });
  return object[name];
}

/** Lays a piece of news over the document. */
export function learn(doc, news) {
  doc.now = news.now;
  if (news.progress) {
    addPoint(doc.totals, doc.totals, news.progress.t, news.progress.totals);
    addPoint(doc.ranks, doc.ranks.rate, news.progress.t, news.progress.rates);
  }
  for (const row of news.timeline || []) doc.timeline.push(row);
  doc.timeline.splice(0, Math.max(0, doc.timeline.length - MOST_ROWS));
  for (const epoch of news.epochs || []) learnEpoch(doc.epochs, epoch);
  for (const [host, load] of Object.entries(news.hosts || {})) {
    const { t, facts, ...values } = load;
    const kept = own(doc.hosts, host, () => ({ t: [], facts }));
    kept.facts = facts;
    addPoint(kept, kept, t, values);
  }
  for (const [source, lines] of Object.entries(news.tails || {})) {
    const kept = own(doc.tails, source, () => []);
    kept.push(...lines);
    kept.splice(0, Math.max(0, kept.length - MOST_LINES));
  }
  doc.marks = [...doc.marks, ...(news.marks || [])].slice(-MOST_MARKS);
}

function learnEpoch(epochs, { eval: metrics, ...row }) {
  epochs.eval ||= {};
  const length = epochs.t.length;
  for (const [name, value] of Object.entries(row)) (epochs[name] ||= Array(length).fill(null)).push(value);
  for (const name of Object.keys(metrics)) own(epochs.eval, name, () => Array(length).fill(null));
  for (const [name, column] of Object.entries(epochs.eval)) column.push(Object.hasOwn(metrics, name) ? metrics[name] : null);
}

/** One more reading; when there are too many, every second one goes. `columns` may be `owner` itself. */
function addPoint(owner, columns, t, values) {
  if (owner.t.length && t <= owner.t[owner.t.length - 1]) return;
  const length = owner.t.length;
  owner.t.push(t);
  for (const name of Object.keys(values)) if (!Array.isArray(columns[name])) columns[name] = Array(length).fill(null);
  const names = Object.keys(columns).filter((name) => name !== "t" && Array.isArray(columns[name]));
  for (const name of names) columns[name].push(values[name] ?? null);
  if (owner.t.length > MOST_POINTS) {
    const half = (column) => column.filter((_, at) => at % 2 === column.length % 2 || at === column.length - 1);
    for (const name of names) columns[name] = half(columns[name]);
    owner.t = half(owner.t);
  }
}

/** The newest value that is one. */
export function newest(column) {
  for (let at = (column || []).length - 1; at >= 0; at -= 1) if (column[at] !== null) return column[at];
  return null;
}
