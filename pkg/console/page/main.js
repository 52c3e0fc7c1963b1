// The page asks the service every two seconds while somebody looks at it, and each section shows its part of the answers.
import { ask, Failure } from "./api.js";
import { banner, banners, lost } from "./banners.js";
import { Details } from "./details.js";
import { absent, aged, byId, h, Once, write } from "./dom.js";
import { counted } from "./format.js";
import { Overrides, overridesPath } from "./overrides.js";
import { refusedView, topRefused, valuesView } from "./refused.js";
import { reloadsView } from "./reloads.js";
import { storeView } from "./store.js";
import { Tiles } from "./tiles.js";
import { tokenButton } from "./token.js";
import { Tree } from "./tree.js";
import { TryIt } from "./tryit.js";
import { unmatchedView } from "./unmatched.js";

const interval = 2000;
const body = (id) => byId(id).querySelector(".body");

const tiles = new Tiles(byId("now"));
const tryIt = new TryIt(body("try"));
const tree = new Tree(byId("rules-body"), (node) => new Details(node, pages.includes("/explain") ? () => tryIt.of(node.rule, node.domain) : null, tick));
const shown = {
  banners: new Once(byId("banners")), refused: new Once(body("refused")), store: new Once(body("store")), reloads: new Once(body("reloads")),
  unmatched: new Once(body("unmatched")), overrides: new Once(body("overrides")), values: new Once(byId("values")),
};
const overridesList = new Overrides(shown.overrides, tick);
let pages = []; // that this build has
let hash; // of the rules that were shown last
let top; // what /top tells now, if this build has it
let overrides = []; // that there are now, as far as is known
const refusedParts = new Set(); // paths that are not for us, unless there is another token

function showStatus(status, at) {
  const { readiness } = status;
  tiles.show(status, at);
  write(byId("version"), status.version);
  showReady(readiness.ready ? "ready" : "not ready", readiness.ready);
  shown.banners.show(banners(status), (list) => list.map(banner));
  shown.store.show([status.store, status.degraded, readiness.store, top?.store], () => storeView(status, top));
  shown.reloads.show(status.reloads, (list) => reloadsView(list, status.now));
  tryIt.build(pages.includes("/explain"));
  byId("token").hidden = !pages.includes("/api/v1/");
}

function showReady(words, good) {
  const ready = byId("ready");
  ready.hidden = false;
  ready.dataset.state = good ? "good" : "bad";
  write(ready, words);
  document.title = good ? "envoy-rls" : `${words} · envoy-rls`;
}

function showRules(rules, at) {
  tree.show(rules, overrides, at);
  const n = rules.domains.reduce((sum, d) => sum + d.rules.length, 0);
  write(byId("rules-note"), n > 0 ? `${counted(n, "rule")} in ${counted(rules.domains.length, "domain")}` : "");
  shown.refused.show(topRefused(rules), refusedView);
  if (rules.hash !== hash) {
    hash = rules.hash;
    tryIt.suggest(rules);
  }
}

// part shows what a page that this build may not have answers. What it can't have is not shown as it was.
async function part(section, page, path, show) {
  if (!pages.includes(page)) {
    section.show("absent", absent);
    return;
  }
  if (refusedParts.has(path)) {
    return;
  }
  try {
    show(await ask("GET", path));
  } catch (failure) {
    if (!(failure instanceof Failure)) {
      throw failure;
    }
    if (failure.status === 401 || failure.status === 403) {
      refusedParts.add(path);
    }
    section.show(failure.message, (text) => (failure.status === 404 ? absent() : h("p", { class: "problem" }, text)));
  }
}

async function read() {
  const status = await ask("GET", "/api/v1/status");
  const at = Date.parse(status.now) / 1000;
  pages = status.pages;
  top = undefined;
  overrides = [];
  const [rules] = await Promise.all([
    ask("GET", "/api/v1/rules"),
    part(shown.unmatched, "/unmatched", "/unmatched", (answer) => shown.unmatched.show(answer, () => unmatchedView(answer, status.now))),
    pages.includes("/top") && part(shown.values, "/top", "/top?rows=8", (answer) => shown.values.show((top = answer), valuesView)),
    part(shown.overrides, "/api/v1/", overridesPath, (answer) => {
      overrides = answer.overrides;
      overridesList.show(answer);
    }),
  ]);
  showStatus(status, at);
  showRules(rules, at);
  aged(status.now);
}

let reading = false;
let outdated = false; // something has changed since the reading began
let reached = new Date(); // when the service answered last, or else the page was opened
let timer;

// tick reads now, or as soon as the reading that is under way has ended, and again after the interval.
async function tick() {
  clearTimeout(timer);
  if (reading || document.hidden) {
    outdated = reading;
    return;
  }
  reading = true;
  outdated = false;
  try {
    await read();
    reached = new Date();
    document.body.dataset.state = "live";
  } catch (failure) {
    if (!(failure instanceof Failure)) {
      throw failure;
    }
    document.body.dataset.state = "lost";
    showReady("not reached", false);
    shown.banners.show(lost(reached, failure.message), banner);
  } finally {
    reading = false;
    timer = setTimeout(tick, outdated ? 0 : interval);
  }
}

const search = byId("search");
search.addEventListener("input", () => tree.search(search.value));
search.addEventListener("keydown", (e) => {
  if (e.key === "Escape") {
    search.value = "";
    tree.search("");
  }
});
document.addEventListener("keydown", (e) => {
  if (e.key === "/" && !e.ctrlKey && !e.metaKey && !e.altKey && !e.target.closest("input, select, textarea, dialog")) {
    e.preventDefault();
    search.focus();
    search.select();
  }
});
document.addEventListener("visibilitychange", tick);

tokenButton(() => {
  refusedParts.clear();
  tree.forgetDetails();
  tryIt.forget();
  tick();
});

tick();
