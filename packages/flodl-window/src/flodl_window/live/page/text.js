// Text and figures for people. Everything that came from somewhere else becomes a text node here and nothing else.

export function byId(id) {
  return document.getElementById(id);
}

/** An element with properties and children; strings become text. `bdi` keeps right-to-left marks to themselves. */
export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") made.className = value;
    else if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined).map((child) => (typeof child === "number" ? String(child) : child)));
  return made;
}

/** `text` with its overrides and isolates of direction made visible: one that is left open would turn what stands behind it. */
export function upright(text) {
  return String(text).replace(/[\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
}

/** Text of somebody else's, isolated. */
export function theirs(text, properties = {}) {
  return el("bdi", properties, upright(text));
}

/** The same inside a longer text. */
export function isolated(text) {
  return `\u2068${upright(text)}\u2069`;
}

/** Sets text only where it differs, so that selections and screen readers are left alone. */
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const grouped = new Intl.NumberFormat("en-US");

export function count(value) {
  return grouped.format(Math.round(value));
}

/** Four digits that matter. */
export function figure(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1000) return count(value);
  if (size !== 0 && size < 0.001) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

/** Samples per second: whole ones, but for the slow. */
export function rate(value) {
  return Math.abs(value) < 10 ? figure(value) : count(value);
}

export function percent(value) {
  return value === null || value === undefined ? "–" : `${Math.round(100 * value)} %`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let size = value;
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (size < 999.5) return `${size < 10 && unit !== "B" ? size.toFixed(1) : Math.round(size)} ${unit}`;
    size /= 1000;
  }
  return `${size.toFixed(1)} TB`;
}

/** 75 → "1:15", 3700 → "1:01:40". */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  if (!parts[0]) return `${parts[1]}:${String(parts[2]).padStart(2, "0")}`;
  return `${parts[0]}:${String(parts[1]).padStart(2, "0")}:${String(parts[2]).padStart(2, "0")}`;
}

/** [0,1,2,5] → "0–2, 5". */
export function ranges(numbers) {
  const runs = [];
  for (const number of numbers) {
    const last = runs[runs.length - 1];
    if (last && number === last[1] + 1) last[1] = number;
    else runs.push([number, number]);
  }
  return runs.map(([from, to]) => (from === to ? `${from}` : to === from + 1 ? `${from}, ${to}` : `${from}–${to}`)).join(", ");
}

/** "3 × NVIDIA H200": equal labels once. */
export function tally(labels) {
  const counts = new Map();
  for (const label of labels) counts.set(label, (counts.get(label) || 0) + 1);
  return [...counts].map(([label, times]) => (times > 1 ? `${times} × ${label}` : label)).join(", ");
}
