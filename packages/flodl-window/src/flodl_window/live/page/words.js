// The page's words: phase and countdown, figures, who is in, who was turned away, what happened, output, verdict.
import { byId, bytes, count, duration, el, figure, percent, put, ranges, rate, tally, theirs, upright } from "./text.js";
import { newest } from "./store.js";

const OPEN = ["waiting", "staging"];
const ENDED = ["done", "failed"];
const STATES = { in: "ok", running: "go", training: "go", ready: "ok", done: "ok", left: "", starting: "wait", stalled: "wait", lost: "bad" };

/** Puts `rows` into `parent` only where they have changed. */
function fill(parent, key, make) {
  const text = JSON.stringify(key);
  if (parent.dataset.key === text) return;
  parent.dataset.key = text;
  parent.replaceChildren(...make());
}

/** `at`: seconds that have passed since `state` came, for the countdown. */
export function showPhase(doc, at) {
  const state = doc.state;
  if (!state) return;
  const phase = byId("phase");
  put(phase, state.phase);
  phase.dataset.phase = state.phase;
  byId("main").dataset.phase = state.phase;
  put(byId("run"), upright(state.run));
  put(byId("mode"), upright(state.mode));
  const why = state.why.replace(/; (closes|gives up) in \d+ s$/, "");
  put(byId("why").firstElementChild, ENDED.includes(state.phase) ? "" : upright(why));
  const left = state.window_remaining_secs;
  const cap = state.cap_remaining_secs;
  const countdown = byId("countdown");
  countdown.hidden = !OPEN.includes(state.phase) || (left === null && cap === null);
  if (!countdown.hidden) {
    const closes = left > 0 && state.start_mode !== "manual";
    const text = duration(Math.max(0, (closes ? left : cap) - at));
    if (countdown.dataset.text !== text + closes) {
      countdown.dataset.text = text + closes;
      countdown.replaceChildren(text, el("small", {}, closes ? "until the window closes" : "until it gives up"));
    }
  }
  const progress = state.progress;
  const bar = byId("progress");
  bar.hidden = !progress || !progress.dataset;
  if (!bar.hidden) {
    const done = Math.min(100, Math.round((100 * progress.samples) / progress.dataset));
    bar.setAttribute("aria-valuenow", String(done));
    bar.firstElementChild.style.width = `${done}%`;
  }
  document.title = [state.phase, progress && !ENDED.includes(state.phase) ? `epoch ${progress.epoch + 1}/${progress.epochs}` : null, "flodl"].filter(Boolean).join(" · ");
}

export function showFigures(doc) {
  const progress = doc.state?.progress;
  byId("figures").hidden = !progress;
  if (!progress) return;
  const metrics = Object.entries(doc.epochs.eval || {}).slice(0, 4);
  const figures = [
    ["epoch", String(progress.epoch + 1), `of ${progress.epochs}`],
    ["samples per second", rate(progress.samples_per_s), ""],
    ["loss", figure(newest(doc.epochs.loss) ?? progress.loss ?? null), ""],
    ...metrics.map(([name, column]) => [name, figure(newest(column)), ""]),
    ...((progress.ranks || []).length > 1 ? [["balance", figure(progress.balance ?? null), ""], ["averaging", percent(progress.sync_share ?? null), "of the time"]] : []),
    ["averages", count(progress.rounds ?? 0), ""],
    ["elapsed", duration(doc.now), ""],
  ];
  fill(byId("figures").firstElementChild, figures, () =>
    figures.map(([name, value, unit]) => el("div", {}, el("dt", {}, theirs(name)), el("dd", {}, value, unit ? el("small", {}, unit) : null))));
}

function stateOf(word, why) {
  return el("span", { class: `state ${STATES[word] ?? ""}`, title: why || word }, word);
}

function loadOf(load) {
  if (!load) return ["", "", "", ""];
  const cards = Object.keys(load).filter((name) => /^gpu\d+$/.test(name));
  return [
    percent(newest(load.cpu)),
    percent(newest(load.memory)),
    cards.length ? cards.map((card) => percent(newest(load[card]))).join(" ") : "",
    `${bytes(newest(load.rx))}/s in, ${bytes(newest(load.tx))}/s out`,
  ];
}

export function showRoster(doc) {
  const state = doc.state;
  if (!state) return;
  const wanted = state.target_ranks ?? state.min_rank_start;
  const hosts = `${state.joined_hosts} ${state.joined_hosts === 1 ? "host" : "hosts"}`;
  const held = OPEN.includes(state.phase) && state.start_mode !== "auto" ? (state.start_armed ? "; the start is armed" : `; start: ${state.start_mode}`) : "";
  put(byId("roster-sum"), `${state.joined_ranks} of ${wanted} ranks on ${hosts}${held}`);
  const loads = state.members.map((member) => loadOf(doc.hosts[member.host]));
  const stalled = new Map(state.ranks.map((rank) => [rank.rank, rank]));
  const members = state.members.map((member) => {
    const worst = member.ranks.map((rank) => stalled.get(rank)).find((rank) => rank && (["lost", "stalled"].includes(rank.status) || rank.why));
    const word = member.status === "running" && state.ranks.length ? (worst?.status ?? stalled.get(member.ranks[0])?.status ?? member.status) : member.status;
    return { ...member, word, why: member.why || worst?.why || "" };
  });
  fill(byId("roster").querySelector(".table"), [members, loads, state.missing], () => {
    const gpus = loads.some(([, , gpu]) => gpu);
    const head = ["host", "ranks", "hardware", "came by", "address", "CPU", "memory", gpus ? "GPU" : null, "network", ""];
    const rows = members.map((member, at) => {
      const [cpu, memory, gpu, net] = loads[at];
      return el("tr", {},
        el("td", { class: "host" }, theirs(member.host)),
        el("td", { class: "n", "data-label": "ranks" }, ranges(member.ranks)),
        el("td", { class: "wide" }, theirs(tally(member.gpus)), member.libtorch && member.libtorch !== "cpu" ? el("span", { class: "quiet" }, " ", theirs(member.libtorch)) : null),
        el("td", { "data-label": "by" }, theirs(member.road || "–")),
        el("td", { class: "mono" }, theirs(member.address)),
        el("td", { class: "n", "data-label": "CPU" }, cpu),
        el("td", { class: "n", "data-label": "memory" }, memory),
        gpus ? el("td", { class: "n", "data-label": "GPU" }, gpu) : null,
        el("td", { class: "n", "data-label": "" }, net),
        el("td", { class: "status" }, stateOf(member.word, member.why), member.why ? el("span", { class: "quiet" }, " ", theirs(member.why)) : null));
    });
    const missing = state.missing.map((host) =>
      el("tr", { class: "away" }, el("td", { class: "host" }, theirs(host)), ...Array(gpus ? 8 : 7).fill(0).map(() => el("td")), el("td", { class: "status" }, stateOf("not in yet", ""))));
    const titles = el("tr", {}, ...head.filter((title) => title !== null).map((title) => el("th", { scope: "col", class: ["ranks", "CPU", "memory", "GPU", "network"].includes(title) ? "n" : "" }, title)));
    return [el("table", { class: "roster" }, el("thead", {}, titles), el("tbody", {}, ...rows, ...missing))];
  });
}

export function showRefused(doc) {
  const refused = doc.state?.refused || [];
  byId("refused").hidden = !refused.length;
  fill(byId("refused").querySelector("ul"), refused, () =>
    [...refused].reverse().map((each) =>
      el("li", {},
        el("p", {}, el("strong", {}, theirs(each.host || each.address || "somebody")), " ", el("span", { class: "quiet" }, theirs(each.host ? each.address : ""), each.times > 1 ? ` · ${each.times} times` : "")),
        el("p", {}, theirs([each.what, each.why].filter(Boolean).join(": "))),
        each.fix ? el("p", { class: "fix" }, theirs(each.fix)) : null)));
}

export function showMarks(doc) {
  byId("marks").hidden = !doc.marks.length;
  fill(byId("marks").querySelector("ol"), doc.marks, () =>
    [...doc.marks].reverse().map(([t, kind, text]) => el("li", {}, el("span", { class: "at" }, duration(t)), el("span", { class: "kind" }, theirs(kind)), theirs(text, { class: "text" }))));
}

/** Whose output tells of a failure: the rank's that is its cause, else its relay's or agent's, else another one's of that host. */
export function culprit(cause, sources) {
  if (!cause?.host) return undefined;
  const rank = cause.rank ?? null;
  const wanted = rank !== null ? [`${cause.host}:${rank}`] : ["relay", "agent"].filter((part) => cause.what.includes(part)).map((part) => `${cause.host}:${part}`);
  return wanted.find((source) => sources.includes(source)) ?? sources.find((source) => source.startsWith(`${cause.host}:`));
}

export function showLogs(doc) {
  const sources = Object.keys(doc.tails).sort(new Intl.Collator("en", { numeric: true }).compare);
  byId("logs").hidden = !sources.length;
  const select = byId("source");
  fill(select, sources, () => {
    const chosen = select.value;
    return sources.map((source) => el("option", { value: source, selected: source === chosen }, upright(source)));
  });
  const guilty = doc.state?.phase === "failed" && !select.dataset.chosen ? culprit(doc.state.cause, sources) : undefined;
  if (guilty) select.value = guilty;
  const source = sources.includes(select.value) ? select.value : sources[0];
  const box = byId("lines");
  const atEnd = box.dataset.source !== source || box.scrollTop + box.clientHeight >= box.scrollHeight - 24;
  box.dataset.source = source;
  fill(box, [source, doc.tails[source] || []], () => (doc.tails[source] || []).map((line) => el("div", {}, upright(line))));
  if (atEnd) box.scrollTop = box.scrollHeight;
}

export function showVerdict(doc) {
  const state = doc.state;
  const box = byId("verdict");
  box.hidden = !state || !ENDED.includes(state.phase);
  if (box.hidden) return;
  const failed = state.phase === "failed";
  box.className = failed ? "failed" : state.degraded ? "degraded" : "";
  put(byId("verdict-title"), failed ? "Failed" : state.degraded ? "Done, degraded" : "Done");
  const cause = state.cause;
  const after = state.afterthought;
  fill(byId("verdict-body"), [state.why, cause, after], () => {
    const where = cause && (cause.host || cause.rank !== null) ? [cause.rank !== null && cause.rank !== undefined ? `rank ${cause.rank}` : "", cause.host ? `on ${cause.host}` : ""].filter(Boolean).join(" ") : "";
    return [
      el("p", { class: "cause" }, theirs(failed && cause ? cause.what : state.why)),
      where && !cause.what.includes(cause.host) ? el("p", { class: "quiet" }, theirs(where)) : null,
      after?.note ? el("p", {}, theirs(`${after.first} (${after.note})`)) : null,
      after?.tries?.length
        ? el("div", { class: "tries" }, el("h3", {}, "What to try"), el("ul", {}, ...after.tries.map((line) => el("li", {}, theirs(line)))))
        : cause?.fix ? el("p", { class: "fix" }, theirs(cause.fix)) : null,
      cause?.tail?.length ? el("div", { class: "lines", tabIndex: 0, role: "log", "aria-label": "its last lines" }, ...cause.tail.slice(-50).map((line) => el("div", {}, upright(line)))) : null,
    ].filter(Boolean);
  });
}
