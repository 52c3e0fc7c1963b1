// What there is to know of a rule, or of one of its limits, and to do with it.
import { act } from "./act.js";
import { ask, hasToken } from "./api.js";
import { h, write } from "./dom.js";
import { number } from "./format.js";
import { overridesPath } from "./overrides.js";
import { fixed } from "./tryit.js";

// Details are those of a node of the tree. tryIt, if it isn't null, tries the rule's descriptor; changed is told of overrides.
export class Details {
  constructor(node, tryIt, changed) {
    const { rule } = node;
    this.values = h("span");
    const facts = h("dl", { class: "facts" });
    const fact = (name, value) => facts.append(h("dt", {}, name), h("dd", {}, value));
    fact("Path", h("code", {}, node.path));
    fact("On store failure", rule.on_store_failure);
    if (rule.replaces?.length > 0) {
      fact("Replaces", rule.replaces.join(", "));
    }
    if (rule.max_values > 0) {
      fact("Values", this.values);
    }
    this.element = h(
      "div",
      { role: "row", class: "detail" },
      h(
        "div",
        { role: "gridcell", "aria-colspan": 5 },
        node.sentences.map((words) => h("p", { class: "sentence" }, words)),
        facts,
        tryIt && h("div", { class: "actions" }, h("button", { type: "button", onclick: tryIt }, "Try it")),
        hasToken() && overrideForm(node, changed),
      ),
    );
  }

  // show is told the rule as it is now.
  show(rule) {
    write(this.values, `${number(rule.distinct_values ?? 0)} of ${number(rule.max_values)} that have counters of their own`);
  }
}

const kinds = { shadow: "shadow: refuse nobody", unlimited: "unlimited: don't count", deny: "deny: refuse all", limit: "another limit" };

function overrideForm({ rule, path, domain }, changed) {
  const kind = h("select", { name: "kind" }, ...Object.entries(kinds).map(([value, words]) => h("option", { value }, words)));
  const limit = h("input", { name: "limit", placeholder: "500/second" });
  const limitLabel = h("label", { hidden: true }, "Limit", limit);
  kind.addEventListener("change", () => {
    limit.required = kind.value === "limit";
    limitLabel.hidden = !limit.required;
  });
  const open = rule.levels.filter(({ value }) => !fixed(value)).map(({ key }) => ({ key, input: h("input", { name: "match", placeholder: "any", spellcheck: "false" }) }));
  const lasts = h("input", { name: "for", value: "1h", required: true });
  const reason = h("input", { name: "reason", placeholder: "INC-123", required: true });
  const said = h("p", { class: "said", role: "status" });
  const submit = h("button", { class: "primary" }, "Override");
  const send = async () => {
    const match = open.filter(({ input }) => input.value !== "").map(({ key, input }) => ({ key, value: input.value }));
    const body = { domain, rule: path, match, kind: kind.value, for: lasts.value.trim(), reason: reason.value.trim() };
    if (limit.required) {
      body.limit = limit.value.trim();
    }
    const { does } = await ask("POST", overridesPath, body);
    changed();
    return `Set: ${does}, on all replicas within two seconds.`;
  };
  return h(
    "form",
    {
      class: "override",
      autocomplete: "off",
      onsubmit: (e) => {
        e.preventDefault();
        act(submit, said, send);
      },
    },
    h("label", { class: "kind" }, "Override by", kind),
    limitLabel,
    ...open.map(({ key, input }) => h("label", {}, `Only where ${key} is`, input)),
    h("label", { class: "short" }, "For", lasts),
    h("label", { class: "grow" }, "Reason", reason),
    submit,
    said,
  );
}
