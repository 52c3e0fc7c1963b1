// A descriptor is tried: /explain says what would become of it, and charges nothing.
import { act } from "./act.js";
import { ask, hasToken } from "./api.js";
import { absent, h, write } from "./dom.js";
import { counted, number, span } from "./format.js";

const matchWords = {
  exact: "this value", listed: "one of a list of values", network: "an address in a network", wildcard: "a wildcard", any: "any value",
};

export class TryIt {
  constructor(place) {
    this.place = place;
    this.known = undefined;
    this.domains = h("datalist", { id: "try-domains" });
    this.keys = h("datalist", { id: "try-keys" });
    this.domain = h("input", { name: "domain", list: "try-domains", required: true, placeholder: "demo", autocomplete: "off", spellcheck: "false" });
    this.hits = h("input", { name: "hits", type: "number", value: 1, min: 0, max: 1000000, class: "number" });
    this.entries = h("div", { class: "entries" });
    this.answer = h("div", { class: "answer", "aria-live": "polite" });
    this.said = h("p", { class: "said", role: "status" });
    this.submit = h("button", { class: "primary" }, "Explain");
    this.form = h(
      "form",
      {
        autocomplete: "off",
        onsubmit: (e) => {
          e.preventDefault();
          this.explain();
        },
      },
      this.domains, this.keys,
      h("div", { class: "fields" }, h("label", {}, "Domain", this.domain), h("label", { class: "hits" }, "Hits", this.hits)),
      this.entries,
      h("div", { class: "actions" }, h("button", { type: "button", onclick: () => this.add("", "").focus() }, "Add an entry"), this.submit),
    );
    this.add("", "");
  }

  // build is told whether this build can explain.
  build(can) {
    if (can !== this.known) {
      this.known = can;
      this.place.replaceChildren(...(can ? [this.form, this.answer, this.said] : [absent()]));
    }
  }

  // suggest offers what rules have.
  suggest(rules) {
    this.domains.replaceChildren(...rules.domains.map((d) => h("option", { value: d.name })));
    const keys = new Set(rules.domains.flatMap((d) => d.rules.flatMap((r) => r.levels.map((l) => l.key))));
    this.keys.replaceChildren(...[...keys].slice(0, 200).map((key) => h("option", { value: key })));
  }

  // of fills in a rule's descriptor, and goes to its first value that is open.
  of(rule, domain) {
    this.domain.value = domain;
    this.entries.replaceChildren();
    const inputs = rule.levels.map(({ key, value }) => this.add(key, fixed(value) ? value : ""));
    this.forget();
    this.form.scrollIntoView({ block: "nearest" });
    const open = inputs.findIndex((_, i) => !fixed(rule.levels[i].value));
    (open < 0 ? inputs.at(-1) : this.entries.children[open].querySelector(".value")).focus();
  }

  // add adds an entry, and returns the field for its key.
  add(key, value) {
    const name = h("input", { class: "key", list: "try-keys", placeholder: "key", "aria-label": "Key", autocomplete: "off", spellcheck: "false" });
    const text = h("input", { class: "value", placeholder: "value", "aria-label": "Value", autocomplete: "off", spellcheck: "false" });
    name.value = key;
    text.value = value;
    const row = h(
      "div",
      { class: "entry" },
      name, h("span", { "aria-hidden": "true" }, "="), text,
      h("button", { type: "button", class: "bare", "aria-label": "Remove this entry", onclick: () => this.remove(row) }, "×"),
    );
    this.entries.append(row);
    return name;
  }

  remove(row) {
    row.remove();
    if (this.entries.children.length === 0) {
      this.add("", "");
    }
    this.entries.querySelector("input").focus();
  }

  request() {
    const entries = [...this.entries.children]
      .map((row) => ({ key: row.querySelector(".key").value, value: row.querySelector(".value").value }))
      .filter(({ key, value }) => key !== "" || value !== "");
    return { domain: this.domain.value, descriptors: [{ entries, hitsAddend: String(Math.max(0, Math.trunc(Number(this.hits.value)) || 0)) }] };
  }

  explain() {
    const request = this.request();
    return act(this.submit, this.said, async () => {
      this.show(await ask("POST", "/explain", request), request);
      return "";
    });
  }

  // show shows what was explained of a request.
  show(x, request) {
    const held = this.answer.contains(document.activeElement);
    const limited = x.descriptors.some((d) => d.limits?.length > 0);
    this.answer.replaceChildren(...explanation(x), ...(limited && hasToken() ? [this.reset(request)] : []));
    if (held) {
      this.submit.focus();
    }
  }

  // reset is a button that resets the counters of what was explained, and explains it again.
  reset(request) {
    const { domain, descriptors: [{ entries }] } = request;
    const button = h("button", { type: "button" }, "Reset its counters");
    button.addEventListener("click", () =>
      act(button, this.said, async () => {
        const { counters } = await ask("POST", "/api/v1/counters/reset", { domain, descriptor: entries });
        this.show(await ask("POST", "/explain", request), request);
        return `${counted(counters, "counter")} reset, on all replicas within two seconds.`;
      }),
    );
    return h("div", { class: "actions" }, button);
  }

  // forget takes away what was answered: what can be done with it has changed.
  forget() {
    this.answer.replaceChildren();
    write(this.said, "");
  }
}

// fixed tells whether a level of a rule has one value only.
export function fixed(value) {
  return value !== undefined && !/[*{]/.test(value);
}

const answers = { OK: ["OK", "good"], OVER_LIMIT: ["Over limit", "bad"], error: ["Error: Envoy's failure_mode_deny decides", "bad"] };

// explanation shows an answer of /explain.
function explanation(x) {
  const [words, state] = answers[x.answer] ?? ["Not known", "warn"];
  const shown = [h("p", { class: "verdict", "data-state": state }, words)];
  if (!x.at) {
    shown.push(h("p", { class: "why" }, "No rules name this domain."));
  }
  if (x.failure) {
    shown.push(h("p", { class: "problem" }, `The store could not be asked: ${x.failure}`));
  }
  return [...shown, ...x.descriptors.flatMap(descriptor)];
}

function descriptor(d) {
  const shown = [h("ol", { class: "levels" }, ...(d.levels ?? []).map(level))];
  if (d.rule) {
    shown.push(h("p", { class: "rule-line" }, "Rule ", h("code", {}, d.rule)));
  } else if (d.why) {
    shown.push(h("p", { class: "why" }, d.why));
  }
  if (d.words) {
    shown.push(h("p", {}, d.words));
  }
  if (d.overflow) {
    shown.push(h("p", { class: "why" }, "The rule has too many values (max_values): this one shares a counter with others."));
  }
  return [...shown, ...(d.limits ?? []).map(limit)];
}

function level(l) {
  const found = l.match in matchWords;
  return h(
    "li",
    { class: found ? "found" : "lost" },
    h("p", {}, h("code", {}, `${l.key}=${l.sent}`), " ", h("span", { class: "quiet" }, found ? matchWords[l.match] : "leads nowhere", l.at && ` at ${l.at}`)),
    l.value !== l.sent && h("p", { class: "quiet" }, `made ${l.value} (${l.prepared})`),
    ...(l.others ?? []).map((o) => h("p", { class: "other" }, `not ${o.path}: ${o.why}`)),
    l.more > 0 && h("p", { class: "other" }, `nor ${number(l.more)} more`),
  );
}

function limit(l) {
  const shown = h("div", { class: "limit" }, h("p", {}, l.words));
  if (l.skipped) {
    shown.append(h("p", { class: "quiet" }, `not asked: ${l.skipped}`));
    return shown;
  }
  if (l.decided === "nobody") {
    shown.append(h("p", { class: "quiet" }, "what is left is not known"));
    return shown;
  }
  const meter = h("span", { class: "meter", "aria-hidden": "true" });
  meter.style.setProperty("--part", l.most > 0 ? Math.min(1, Math.max(0, l.left) / l.most) : 0);
  const reset = l.reset_after > 0 ? `, reset in ${span(l.reset_after)}` : "";
  const wait = l.retry_after > 0 ? `: retry after ${span(l.retry_after)}` : "";
  shown.append(
    meter,
    h("p", { class: "left" }, h("b", {}, number(Math.max(0, l.left))), ` of ${number(l.most)} left${l.decided === "local" ? " of this replica's share" : ""}${reset}`),
    h("p", { class: l.allowed ? "quiet" : "problem" }, l.allowed ? `passes, and leaves ${number(Math.max(0, l.left_after))}` : `is over the limit${wait}`),
    l.counter ? h("details", {}, h("summary", {}, "Counter"), h("code", { class: "wrap" }, l.counter)) : "",
  );
  return shown;
}
