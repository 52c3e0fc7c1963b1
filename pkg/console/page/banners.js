// What an operator should know before anything else.
import { h } from "./dom.js";
import { clock, counted } from "./format.js";
import { isAway } from "./tiles.js";

// lost is for a service that has not answered since a time.
export function lost(since, why) {
  return { kind: "bad", title: "The service can't be reached", text: `Not reached since ${clock(since)}: ${why}. What is below is from then; this page goes on asking.` };
}

// banners are for a status.
export function banners(status) {
  const list = [];
  const { readiness, store } = status;
  if (isAway(status)) {
    const said = readiness.store === "ok" ? "" : readiness.store;
    list.push({
      kind: "bad", title: "The store is away",
      text: `Redis at ${store.address} is not asked; each rule's on_store_failure answers. Nothing needs to be done here once it is back.`,
      lines: said === "" ? [] : [said],
    });
  }
  const missing = readiness.missing ?? [];
  if (missing.length > 0) {
    list.push({ kind: "bad", title: `Rules are missing: ${counted(missing.length, "problem")}`, text: "These have no good version in force. Mend the files: they are loaded as soon as they are saved.", lines: missing });
  }
  const refused = readiness.refused ?? [];
  if (refused.length > 0) {
    list.push({ kind: "warn", title: `Rules were refused: ${counted(refused.length, "problem")}`, text: "What was good last stays in force. Mend the files: they are loaded as soon as they are saved.", lines: refused });
  }
  if (!readiness.ready && missing.length === 0) {
    list.push({ kind: "warn", title: "Not ready", text: `${readiness.reason}.` });
  }
  if (status.shadow) {
    list.push({ kind: "note", title: "All limits are only tried out", text: "--shadow (SHADOW_MODE) is set: nobody is refused." });
  }
  return list;
}

export function banner({ kind, title, text, lines = [] }) {
  const shown = lines.slice(0, 10);
  return h(
    "div",
    { class: `banner ${kind}` },
    h("strong", {}, title),
    h("p", {}, text),
    shown.length > 0 && h("ul", {}, ...shown.map((line) => h("li", {}, line)), lines.length > shown.length && h("li", {}, `and ${counted(lines.length - shown.length, "more", "more")}`)),
  );
}
