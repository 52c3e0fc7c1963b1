// The last loads of rules, with what changed and what was wrong.
import { age, empty, h } from "./dom.js";
import { counted } from "./format.js";

const outcomes = {
  in_force: ["in force", "good"],
  partly: ["partly in force", "warn"],
  refused: ["refused", "bad"],
};
const shownAtOnce = 8;

export function reloadsView(reloads, now) {
  if (reloads.length === 0) {
    return empty("No rules were loaded yet", "The first load shows up here, with what is wrong if it fails.");
  }
  const items = reloads.map((r, i) => item(r, now, i === 0));
  const list = h("ol", { class: "loads" }, ...items.slice(0, shownAtOnce));
  if (items.length <= shownAtOnce) {
    return list;
  }
  const rest = h("details", { class: "older" }, h("summary", {}, `${counted(items.length - shownAtOnce, "older one")}`), h("ol", { class: "loads" }, ...items.slice(shownAtOnce)));
  return [list, rest];
}

function item(r, now, newest) {
  const [words, state] = outcomes[r.outcome] ?? [r.outcome, ""];
  const what = [...r.problems.map((p) => ["problem", p]), ...r.changes.map((c) => [kinds[c[0]] ?? "same", c])];
  const more = (r.more_changes ?? 0) + (r.more_problems ?? 0);
  const head = [
    h("span", { class: "dot", "data-state": state, "aria-hidden": "true" }),
    h("span", { class: "when" }, age(r.last, now)),
    h("span", { class: "outcome" }, words),
    h("code", {}, r.hash || "no rules"),
    h("span", { class: "quiet" }, summary(r)),
  ];
  if (what.length === 0) {
    return h("li", { class: "load" }, h("p", { class: "line" }, ...head));
  }
  return h(
    "li",
    { class: "load" },
    h(
      "details",
      { open: newest || r.problems.length > 0 },
      h("summary", { class: "line" }, ...head),
      h("ul", { class: "what" }, ...what.map(([kind, text]) => h("li", { class: kind }, text)), more > 0 && h("li", { class: "quiet" }, `and ${counted(more, "more", "more")}`)),
    ),
  );
}

// kinds are by the sign that a change begins with.
const kinds = { "+": "added", "-": "removed", "~": "changed" };

function summary(r) {
  const parts = [];
  if (r.problems.length > 0) {
    parts.push(counted(r.problems.length + (r.more_problems ?? 0), "problem"));
  }
  if (r.changes.length > 0) {
    parts.push(counted(r.changes.length + (r.more_changes ?? 0), "change"));
  }
  if (r.times > 1) {
    parts.push(`${r.times} times in a row`);
  }
  return parts.join(", ");
}
