// Shapes of descriptors that no rule matches. Domains and keys are what clients sent.
import { age, empty, h } from "./dom.js";
import { counted, number } from "./format.js";

const most = 50;

export function unmatchedView({ shapes, forgotten }, now) {
  if (shapes.length === 0) {
    return empty("Every descriptor that came had a rule", "If Envoy should be limited and isn't, it may not ask at all: look at ", h("b", {}, "Calls"), " above.");
  }
  const rows = shapes.slice(0, most).map((shape) =>
    h(
      "li",
      {},
      h("b", { class: "number" }, number(shape.count)),
      h("span", { class: "shape" }, h("span", { class: shape.known ? "in" : "in unknown" }, shape.domain || "(no domain)"), " ", ...keys(shape)),
      h("small", { class: "when" }, age(shape.last_seen, now)),
      h("span", { class: "nearest" }, shape.nearest),
    ),
  );
  const more = shapes.length - rows.length + (forgotten ?? 0);
  return [h("ol", { class: "shapes" }, ...rows), more > 0 && h("p", { class: "quiet more" }, `${counted(more, "more shape")}`)].filter(Boolean);
}

function keys(shape) {
  if (shape.keys.length === 0) {
    return [h("i", {}, "no entries")];
  }
  const list = shape.keys.flatMap((key) => [h("code", {}, key), " "]);
  return shape.more_keys > 0 ? [...list, `and ${counted(shape.more_keys, "more", "more")}`] : list;
}
