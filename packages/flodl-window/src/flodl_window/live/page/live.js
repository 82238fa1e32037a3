// The live page: server-sent events in, the document kept, everything drawn at most twice a second, a little in each frame.
import { Charts, drawHosts, drawTraining } from "./charts.js";
import { emptyDocument, learn } from "./store.js";
import { Lanes } from "./timeline.js";
import { byId, put } from "./text.js";
import { showFigures, showLogs, showMarks, showPhase, showRefused, showRoster, showVerdict } from "./words.js";

const DRAW_EVERY = 500; // ms
const SLICE = 12; // ms of drawing in one frame; the rest waits for the next, so that scrolling stays smooth
const AGAIN_AFTER = 4000; // ms until a run that ended, or a full house, is asked again
const page = {
  doc: emptyDocument(),
  stateAt: performance.now(),
  dirty: true,
  due: 0,
  training: new Charts(byId("charts").querySelector(".charts"), { patient: true }),
  hosts: new Charts(byId("hosts").querySelector(".charts"), { patient: true }),
  drawing: null,
  lanes: new Lanes(byId("timeline").querySelector(".lanes")),
};

function link(text, live = false) {
  const shown = byId("link");
  put(shown, text);
  shown.classList.toggle("live", live);
}

function connect() {
  const source = new EventSource("/events");
  source.addEventListener("open", () => link("live", true));
  source.addEventListener("history", (event) => {
    const doc = JSON.parse(event.data);
    if (doc.run !== page.doc.run) {
      page.drawing = null; // what is left of the other run's would be drawn among this one's
      page.training.clear();
      page.hosts.clear();
      delete byId("source").dataset.chosen;
    }
    page.doc = doc;
    page.stateAt = performance.now();
    page.dirty = true;
  });
  source.addEventListener("state", (event) => {
    page.doc.state = JSON.parse(event.data);
    page.stateAt = performance.now();
    page.dirty = true;
  });
  source.addEventListener("news", (event) => {
    learn(page.doc, JSON.parse(event.data));
    page.dirty = true;
  });
  source.addEventListener("end", () => {
    source.close();
    link("the run has ended; this is what it left");
    setTimeout(connect, AGAIN_AFTER);
  });
  source.addEventListener("error", () => {
    const ended = ["done", "failed"].includes(page.doc.state?.phase);
    link(ended ? "the run has ended; this is what it left" : "connection lost, trying again");
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, AGAIN_AFTER);
  });
}

function* draw(doc) {
  for (const show of [showVerdict, showFigures, showRoster, showRefused, showMarks, showLogs]) {
    show(doc);
    yield;
  }
  byId("charts").hidden = !doc.totals.t.length && !doc.epochs.t.length;
  if (!byId("charts").hidden) drawTraining(page.training, doc);
  yield* page.training.draw();
  byId("timeline").hidden = !doc.timeline.length;
  if (doc.timeline.length) page.lanes.show(doc);
  yield;
  byId("hosts").hidden = !Object.keys(doc.hosts).length;
  drawHosts(page.hosts, doc);
  yield* page.hosts.draw();
}

function frame(now) {
  requestAnimationFrame(frame); // first: a drawing that fails is one drawing less, and not the last
  const began = performance.now();
  if (page.dirty && !page.drawing && now >= page.due && !document.hidden) {
    page.dirty = false;
    page.due = now + DRAW_EVERY;
    showPhase(page.doc, (began - page.stateAt) / 1000);
    page.drawing = draw(page.doc);
  }
  if (page.drawing) {
    do {
      if (page.drawing.next().done) page.drawing = null;
    } while (page.drawing && performance.now() - began < SLICE);
    performance.clearMeasures("draw");
    performance.measure("draw", { start: began, end: performance.now() });
  }
}

// theme: as the system has it, or chosen, and remembered where the browser lets us

const THEMES = { auto: "Auto", light: "Light", dark: "Dark" };

function setTheme(theme) {
  const root = document.documentElement;
  if (theme === "auto") delete root.dataset.theme;
  else root.dataset.theme = theme;
  put(byId("theme"), THEMES[theme]);
  byId("theme").setAttribute("aria-label", `Theme: ${theme === "auto" ? "as the system has it" : theme}`);
  try {
    localStorage.setItem("flodl-theme", theme);
  } catch {
    // private windows forget
  }
  restyle();
}

function nextTheme() {
  const names = Object.keys(THEMES);
  setTheme(names[(names.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % names.length]);
}

function restyle() {
  page.training.restyle();
  page.hosts.restyle();
  page.lanes.forget();
  page.drawing = null;
  page.dirty = true;
  page.due = 0;
}

let remembered = "auto";
try {
  remembered = localStorage.getItem("flodl-theme") ?? "auto";
} catch {
  // as above
}
setTheme(remembered in THEMES ? remembered : "auto");
byId("theme").addEventListener("click", nextTheme);
byId("source").addEventListener("change", () => {
  byId("source").dataset.chosen = "yes"; // from now on no verdict chooses another
  page.dirty = true;
  page.due = 0;
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", restyle);
document.addEventListener("keydown", (event) => {
  const typing = event.ctrlKey || event.metaKey || event.altKey || ["SELECT", "INPUT", "TEXTAREA"].includes(event.target.tagName);
  if (event.key === "t" && !typing) nextTheme();
});
setInterval(() => showPhase(page.doc, (performance.now() - page.stateAt) / 1000), 250);
performance.setResourceTimingBufferSize?.(50);
requestAnimationFrame(frame);
connect();
