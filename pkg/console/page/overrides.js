// Overrides: what stands in the place of rules for a while.
import { act } from "./act.js";
import { ask, hasToken } from "./api.js";
import { empty, h, write } from "./dom.js";
import { span } from "./format.js";

export const overridesPath = "/api/v1/overrides";

// Overrides lists them, with a button to end each if there is a token.
export class Overrides {
  constructor(section, changed) {
    this.section = section;
    this.changed = changed;
    this.left = []; // where each tells how long it lasts
  }

  show({ overrides }) {
    const stays = overrides.map((o) => ({ ...o, seconds: undefined }));
    this.section.show([stays, hasToken()], () => this.list(overrides));
    overrides.forEach((o, i) => write(this.left[i], `ends in ${span(o.seconds)}`));
  }

  list(overrides) {
    this.left = overrides.map(() => h("span"));
    if (overrides.length === 0) {
      return empty("All rules stand as they are written", hasToken() ? "A rule's details have a form to override it." : "With a token, a rule's details have a form to override it.");
    }
    return h("ol", { class: "overrides" }, ...overrides.map((o, i) => this.item(o, this.left[i])));
  }

  item(o, left) {
    return h(
      "li",
      {},
      h("p", {}, h("b", {}, o.rule), " ", h("span", { class: "does" }, words(o))),
      h("p", { class: "quiet" }, left, [` · by ${o.by}`, o.reason].filter(Boolean).join(" · ")),
      o.problem && h("p", { class: "problem" }, o.problem),
      hasToken() && this.end(o),
    );
  }

  end(o) {
    const said = h("p", { class: "said", role: "status" });
    const button = h("button", { type: "button", "aria-label": `End the override of ${o.rule}` }, "End it");
    button.addEventListener("click", () =>
      act(button, said, async () => {
        await ask("DELETE", `${overridesPath}/${encodeURIComponent(o.id)}`);
        this.changed();
        return "";
      }),
    );
    return h("div", { class: "actions" }, said, button);
  }
}

// words are what an override does, and to whom.
export function words(o) {
  return o.match ? `${o.does} where ${o.match}` : o.does;
}
