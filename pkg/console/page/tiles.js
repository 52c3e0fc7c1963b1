// What happens now, in four numbers.
import { h, write } from "./dom.js";
import { ago, counted, number, rate, span } from "./format.js";
import { draw, Series } from "./series.js";

export class Tiles {
  constructor(place) {
    this.calls = new Series();
    this.refused = new Series();
    this.tiles = Object.fromEntries(["Calls", "Refused", "Rules", "Store"].map((name) => [name, tile(name)]));
    place.replaceChildren(...Object.values(this.tiles).map((t) => t.element));
  }

  show(status, at) {
    const { requests } = status;
    const refused = requests.over_limit ?? 0;
    const all = Object.values(requests).reduce((sum, n) => sum + n, 0);
    this.calls.add(at, all);
    this.refused.add(at, refused);
    paint(this.tiles.Calls, rate(this.calls.rate()), "/s", `${number(all)} in ${span((Date.parse(status.now) - Date.parse(status.began)) / 1000)}`, "");
    this.tiles.Calls.spark.replaceChildren(draw(this.calls, 240, 34, "calls of late"));
    paint(this.tiles.Refused, rate(this.refused.rate()), "/s", `${number(refused)} calls over limit`, this.refused.rate() > 0 ? "hot" : "");
    this.tiles.Refused.spark.replaceChildren(draw(this.refused, 240, 34, "refused calls of late"));
    this.rules(status);
    this.store(status);
  }

  rules(status) {
    const { readiness, reloads } = status;
    const loaded = reloads.find((r) => r.outcome !== "refused");
    const bad = [...(readiness.missing ?? []), ...(readiness.refused ?? [])].length;
    const since = loaded ? `loaded ${ago(loaded.last, status.now)}` : "none were loaded yet";
    paint(
      this.tiles.Rules, number(status.limits), status.limits === 1 ? " limit" : " limits",
      bad > 0 ? `${counted(bad, "problem")} in the last load` : since, bad > 0 ? "bad" : "",
    );
    write(this.tiles.Rules.spark, readiness.rules ? `${sources[status.source] ?? status.source} · ${readiness.rules}` : "");
  }

  store(status) {
    const { store, readiness } = status;
    const away = isAway(status);
    const words = { memory: "memory", redis: "Redis" }[store.kind] ?? store.kind;
    paint(this.tiles.Store, away ? "away" : words, "", away ? `${words} is not asked` : store.kind === "memory" ? "this process only" : "answers", away ? "bad" : "good");
    write(this.tiles.Store.spark, store.address ?? readiness.store);
  }
}

const sources = { file: "files", xds: "control plane", snapshot: "snapshot" };

// isAway tells whether the store can't be asked.
export function isAway(status) {
  return status.store.kind !== "memory" && (!status.store.up || status.readiness.store !== "ok");
}

function tile(name) {
  const t = { value: h("span", { class: "value" }), unit: h("span", { class: "unit" }), note: h("p", { class: "note" }), spark: h("div", { class: "below" }) };
  t.element = h("div", { class: "tile" }, h("h3", {}, name), h("p", { class: "figure" }, t.value, t.unit), t.note, t.spark);
  return t;
}

function paint(t, value, unit, note, state) {
  write(t.value, value);
  write(t.unit, unit);
  write(t.note, note);
  t.element.dataset.state = state;
}
