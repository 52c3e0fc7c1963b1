// Who is refused most: limits, by their own counts; and descriptors, where the build has /top.
import { of } from "./counts.js";
import { empty, h } from "./dom.js";
import { number, share, span } from "./format.js";

const most = 8;

// topRefused are the limits that have refused anything, the most first.
export function topRefused(rules) {
  const list = [];
  for (const domain of rules.domains) {
    for (const rule of domain.rules) {
      for (const limit of rule.limits) {
        const { refused, asked } = of(limit.results);
        if (refused > 0) {
          list.push({ path: limit.path, refused, asked });
        }
      }
    }
  }
  list.sort((a, b) => b.refused - a.refused || a.path.localeCompare(b.path));
  return list.slice(0, most);
}

export function refusedView(list) {
  if (list.length === 0) {
    return empty("Nobody was refused", "Rules in shadow mode never refuse: what they would have done is in the tree.");
  }
  return bars(list.map(({ path, refused, asked }) => ({ name: path, n: refused, note: share(refused, asked) })));
}

// valuesView are the descriptors that were refused most of late, as /top tells them.
export function valuesView(top) {
  const list = (top.refused_values ?? []).slice(0, most);
  if (list.length === 0) {
    return [];
  }
  return [
    h("h3", {}, `Descriptors, in the last ${span(top.seconds)}`, top.values_key ? h("span", { class: "quiet" }, " values are hashed") : null),
    bars(list.map((row) => ({ name: row.descriptor || "(no entries)", title: `${row.rule} ${row.descriptor ?? ""}`, n: row.count, note: row.would_refuse ? "tried out" : "" }))),
  ];
}

// bars are names with a number each, the greatest first.
function bars(list) {
  const greatest = list[0].n;
  return h(
    "ol",
    { class: "bars" },
    ...list.map(({ name, title, n, note }) => {
      const bar = h("span", { class: "bar", "aria-hidden": "true" });
      bar.style.setProperty("--part", n / greatest);
      return h("li", {}, bar, h("span", { class: "name", title: title ?? name }, name), h("small", {}, note), h("b", { class: "number" }, number(n)));
    }),
  );
}
