// The store, its breakers, and what answered in its place.
import { h } from "./dom.js";
import { milliseconds, number } from "./format.js";

// storeView shows the store of a status, and how long it takes if the build has /top, which tells that of late.
export function storeView(status, top) {
  const { store, degraded, readiness } = status;
  const list = h("dl", { class: "facts" });
  const fact = (name, ...value) => list.append(h("dt", {}, name), h("dd", {}, ...value));
  if (store.kind === "memory") {
    fact("Kind", "memory of this process");
    fact("Shared", "with nobody; ", h("code", {}, "--redis redis://host:6379"), " shares counts");
  } else {
    fact("Redis", store.address);
    fact("State", readiness.store);
    fact("Breaker", h("span", { class: "lanes" }, ...lanes(store.lanes)));
    fact("Connections", `${number(store.connections_used)} in use, ${number(store.connections_idle)} idle`);
    if (top?.store?.calls > 0) {
      fact("Latency", `${milliseconds(top.store.median_ms)} median, ${milliseconds(top.store.p99_ms)} p99`);
    }
    fact("Replicas", number(store.replicas));
  }
  fact("Failures", ...sums(store.errors, "none since the start"));
  fact("Answered for it", ...sums(degraded, "no hit since the start"));
  return list;
}

// lanes shows each breaker: a closed one lets requests through.
function lanes(list) {
  return list.map(({ name, breaker }) => h("span", { class: "lane", "data-breaker": breaker }, list.length > 1 ? `${name} ` : "", breaker));
}

function sums(counts, none) {
  const list = Object.entries(counts).filter(([, n]) => n > 0);
  if (list.length === 0) {
    return [h("span", { class: "quiet" }, none)];
  }
  list.sort(([, a], [, b]) => b - a);
  return list.map(([name, n]) => h("span", { class: "sum" }, `${name} `, h("b", {}, number(n)), " "));
}
