// The rules as a tree of rows. Arrow keys move in it, as in any treegrid.
import { none, of, plus } from "./counts.js";
import { empty, h, write } from "./dom.js";
import { counted, grouped, number, rate, share, short } from "./format.js";
import { words } from "./overrides.js";
import { draw, Series } from "./series.js";

const mostRows = 1000;
const openAtFirst = 200; // of more rules than this, or on a narrow screen, only domains are shown at first

// Tree shows rules. Its Details are made by a function, of a node.
export class Tree {
  constructor(place, details) {
    this.place = place;
    this.details = details;
    this.series = new Map();
    this.marks = new Map(); // what overrides do, by domain and path
    this.closed = new Set();
    this.rows = new Map(); // by id, as they are shown
    this.selected = null;
    this.focused = null;
    this.filter = "";
    this.shape = undefined; // of the rules that there are nodes for
    this.grid = h(
      "div",
      { role: "treegrid", "aria-label": "Rules", class: "grid", onkeydown: (e) => this.key(e), onclick: (e) => this.click(e) },
      h(
        "div",
        { role: "row", class: "row titles" },
        ...["Rule", "Limit", "Decisions", "Refused", "Refused a second"].map((title) => h("span", { role: "columnheader" }, title)),
      ),
    );
    this.note = h("p", { class: "quiet more", hidden: true });
  }

  // show is told of rules and of overrides, at a time in seconds.
  show(rules, overrides, at) {
    this.marks = Map.groupBy(overrides, (o) => JSON.stringify([o.domain, o.rule]));
    const shape = JSON.stringify(rules.domains.map((d) => [d.name, d.rules.map((r) => [r.path, r.words]), Boolean(d.brought_along)]));
    if (shape !== this.shape) {
      this.build(rules, this.shape === undefined);
      this.shape = shape;
    }
    const counted = new Map();
    for (const root of this.roots) {
      this.count(root, rules, counted, at);
    }
    for (const id of this.series.keys()) {
      if (!counted.has(id)) {
        this.series.delete(id);
      }
    }
    this.render();
  }

  // build makes the nodes of rules that are new.
  build(rules, first) {
    this.roots = rules.domains.map(domainNode);
    const n = rules.domains.reduce((sum, d) => sum + d.rules.length, 0);
    if (first && (n > openAtFirst || matchMedia("(max-width: 680px)").matches)) {
      for (const root of this.roots) {
        this.closed.add(root.id);
      }
    }
  }

  // count sums up what became of a node and all below it.
  count(node, rules, done, at) {
    let sum = node.results ? of(node.results(rules)) : none;
    node.rule &&= node.again(rules);
    for (const child of node.children) {
      sum = plus(sum, this.count(child, rules, done, at));
    }
    node.sum = sum;
    done.set(node.id, sum);
    if (!this.series.has(node.id)) {
      this.series.set(node.id, new Series());
    }
    this.series.get(node.id).add(at, sum.refused);
    return sum;
  }

  // forgetDetails has them made anew: what can be done with a rule has changed.
  forgetDetails() {
    for (const row of this.rows.values()) {
      row.detail = null;
    }
    if (this.roots) {
      this.render();
    }
  }

  search(text) {
    this.filter = text.trim().toLowerCase();
    if (this.roots) {
      this.render();
    }
  }

  // visible are the nodes that are shown, in order.
  visible() {
    const list = [];
    const walk = (node, depth) => {
      if (!this.found(node)) {
        return;
      }
      node.depth = depth;
      list.push(node);
      if (this.isOpen(node)) {
        node.children.forEach((child) => walk(child, depth + 1));
      }
    };
    this.roots.forEach((root) => walk(root, 1));
    return list;
  }

  found(node) {
    return this.filter === "" || node.text.includes(this.filter) || node.children.some((child) => this.found(child)) || this.below(node);
  }

  // below tells whether a node is below one that was found.
  below(node) {
    return node.parent && (node.parent.text.includes(this.filter) || this.below(node.parent));
  }

  isOpen(node) {
    return node.children.length > 0 && (this.filter !== "" || !this.closed.has(node.id));
  }

  render() {
    if (!this.roots || this.roots.length === 0) {
      this.place.replaceChildren(
        empty("No rules are in force", "Put a rule file where --rules says, such as ", h("code", {}, "config/demo.yaml"), ". It is in force as soon as it is saved."),
      );
      return;
    }
    if (!this.grid.isConnected) {
      this.place.replaceChildren(this.grid, this.note);
    }
    const all = this.visible();
    const shown = all.slice(0, mostRows);
    this.nodes = shown;
    if (!shown.some((node) => node.id === this.focused)) {
      this.focused = shown[0]?.id ?? null;
    }
    const elements = shown.flatMap((node) => this.rowOf(node));
    this.arrange(elements);
    this.note.hidden = all.length === shown.length && all.length > 0;
    write(this.note, all.length === 0 ? "No rule has this in its path or its words. Escape clears the search." : `${counted(all.length - shown.length, "more row")}; search narrows them down.`);
  }

  // arrange brings elements into the grid in their order, and leaves those alone that are where they should be.
  arrange(elements) {
    const active = document.activeElement;
    const held = this.grid.contains(active);
    const wanted = new Set(elements);
    for (const old of [...this.grid.children].slice(1)) {
      if (!wanted.has(old)) {
        old.remove();
      }
    }
    elements.forEach((element, i) => {
      const there = this.grid.children[i + 1];
      if (there !== element) {
        this.grid.insertBefore(element, there ?? null);
      }
    });
    if (held && active !== document.activeElement) {
      const heir = active.isConnected ? active : this.rows.get(this.focused)?.element;
      heir?.focus({ preventScroll: true });
    }
    const ids = new Set(this.nodes.map((node) => node.id));
    for (const id of this.rows.keys()) {
      if (!ids.has(id)) {
        this.rows.delete(id);
      }
    }
  }

  // rowOf is a node's row, and the details if it is selected.
  rowOf(node) {
    let row = this.rows.get(node.id);
    if (row && row.node !== node && row.look === look(node)) {
      row.node = node;
    } else if (row?.node !== node) {
      row = newRow(node);
      this.rows.set(node.id, row);
    }
    const { element } = row;
    element.tabIndex = node.id === this.focused ? 0 : -1;
    element.setAttribute("aria-level", node.depth);
    element.style.setProperty("--depth", node.depth - 1);
    if (node.children.length > 0) {
      element.setAttribute("aria-expanded", this.isOpen(node));
    }
    const { sum } = node;
    count(row.asked, sum.asked);
    count(row.refused, sum.refused);
    write(row.part, sum.shadow > 0 ? `+${short(sum.shadow)} tried` : share(sum.refused, sum.asked));
    row.part.title = sum.shadow > 0 ? "would have been refused, by limits that are tried out" : "of the decisions";
    element.classList.toggle("hot", sum.refused > 0);
    element.classList.toggle("idle", sum.asked === 0);
    const series = this.series.get(node.id);
    write(row.rate, sum.refused > 0 ? rate(series.rate()) : "");
    row.spark.replaceChildren(...(sum.refused > 0 ? [draw(series, 96, 20, `refused of late: ${rate(series.rate())} a second`)] : []));
    this.mark(row.mark, node);
    if (!node.rule || node.id !== this.selected) {
      element.removeAttribute("aria-selected");
      row.detail = null;
      return [element];
    }
    element.setAttribute("aria-selected", "true");
    row.detail ??= this.details(node);
    row.detail.show(node.rule);
    return [element, row.detail.element];
  }

  // mark tells what overrides do to a node.
  mark(element, node) {
    const list = this.marks.get(JSON.stringify([node.domain, node.path])) ?? [];
    const inBrief = (o) => (o.match ? `${o.does}, for some` : o.does);
    element.hidden = list.length === 0;
    write(element, list.length > 1 ? counted(list.length, "override") : list.map(inBrief).join(""));
    element.title = list.map(words).join(", ");
  }

  key(event) {
    const i = this.nodes.findIndex((node) => this.rows.get(node.id).element === event.target);
    if (i < 0 || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const node = this.nodes[i];
    const moves = {
      ArrowDown: () => this.focus(this.nodes[i + 1]),
      ArrowUp: () => this.focus(this.nodes[i - 1]),
      Home: () => this.focus(this.nodes[0]),
      End: () => this.focus(this.nodes.at(-1)),
      ArrowRight: () => (this.isOpen(node) ? this.focus(this.nodes[i + 1]) : this.open(node)),
      ArrowLeft: () => (this.isOpen(node) && this.filter === "" ? this.close(node) : this.focus(node.parent)),
      Enter: () => this.choose(node),
      " ": () => this.choose(node),
    };
    if (moves[event.key]) {
      event.preventDefault();
      moves[event.key]();
    }
  }

  click(event) {
    const element = event.target.closest(".row");
    const node = this.nodes.find((n) => this.rows.get(n.id).element === element);
    if (!node) {
      return;
    }
    this.focused = node.id;
    if (event.target.closest(".twist") || !node.rule) {
      this.turn(node);
    } else {
      this.choose(node);
    }
    this.focus(node);
  }

  focus(node) {
    if (!node || !this.rows.has(node.id)) {
      return;
    }
    this.focused = node.id;
    for (const [id, row] of this.rows) {
      row.element.tabIndex = id === node.id ? 0 : -1;
    }
    this.rows.get(node.id).element.focus();
  }

  open(node) {
    this.closed.delete(node.id);
    this.render();
  }

  close(node) {
    this.closed.add(node.id);
    this.render();
  }

  turn(node) {
    if (this.closed.has(node.id)) {
      this.open(node);
    } else {
      this.close(node);
    }
  }

  choose(node) {
    if (!node.rule) {
      this.turn(node);
      return;
    }
    this.selected = this.selected === node.id ? null : node.id;
    this.render();
    this.rows.get(node.id).detail?.element.scrollIntoView({ block: "nearest" });
  }
}

function newRow(node) {
  const row = {
    node, look: look(node), asked: h("span", { role: "gridcell", class: "number" }), refused: h("span"), part: h("small"),
    rate: h("span", { class: "number" }), spark: h("span"), mark: h("em", { class: "tag does", hidden: true }), detail: null,
  };
  row.element = h(
    "div",
    { role: "row", class: `row ${node.kind}` },
    h("span", { role: "gridcell", class: "name" }, h("span", { class: node.children.length > 0 ? "twist" : "leaf", "aria-hidden": "true" }), h("span", { class: "label", title: node.path }, ...node.label)),
    h("span", { role: "gridcell", class: "words" }, node.words, ...node.tags.flatMap((tag) => [" ", h("em", { class: "tag" }, tag)]), " ", row.mark),
    row.asked,
    h("span", { role: "gridcell", class: "number refused" }, row.part, row.refused),
    h("span", { role: "gridcell", class: "trend" }, row.spark, row.rate),
  );
  return row;
}

// look is what a row, and its details, are made of: with the same look they stay, and what was typed into them.
function look({ kind, label, words: does, tags, path, sentences, children, rule }) {
  return JSON.stringify([kind, label.map((part) => part.textContent ?? part), does, tags, path, sentences, children.length > 0, rule?.on_store_failure, rule?.replaces, rule?.max_values]);
}

// count writes a number that may be too long for its column.
function count(element, n) {
  write(element, short(n));
  element.title = short(n) === number(n) ? "" : number(n);
}

// newNode is a node without children. Its results are found again in any rules of the same shape.
function newNode(parent, id, properties) {
  const node = { parent, id, children: [], words: "", tags: [], text: "", rule: null, path: null, sentences: [], results: null, domain: parent?.domain, ...properties };
  parent?.children.push(node);
  return node;
}

function domainNode(domain, d) {
  const root = newNode(null, JSON.stringify([domain.name]), {
    kind: "domain", label: [domain.name], text: domain.name.toLowerCase(), domain: domain.name,
    words: counted(domain.rules.length, "rule"),
  });
  const byId = new Map([[root.id, root]]);
  domain.rules.forEach((rule, r) => addRule(root, byId, rule, (rules) => rules.domains[d].rules[r]));
  if (domain.brought_along) {
    newNode(root, JSON.stringify([domain.name, null]), {
      kind: "limit", label: [h("i", {}, "brought along by requests")], results: (rules) => rules.domains[d].brought_along,
    });
  }
  joinAll(root);
  return root;
}

// joinAll puts levels that lead to one other level only on one row with that.
function joinAll(node) {
  node.children = node.children.map((child) => {
    let only = child;
    while (!only.rule && only.children.length === 1 && only.children[0].kind !== "limit") {
      const next = only.children[0];
      next.label = [...only.label, h("i", {}, " › "), ...next.label];
      next.text = `${only.text} ${next.text}`;
      next.parent = node;
      only = next;
    }
    joinAll(only);
    return only;
  });
}

function addRule(root, byId, rule, again) {
  let node = root;
  const way = [root.domain];
  for (const { key, value } of rule.levels) {
    way.push(key, value ?? "");
    const id = JSON.stringify(way);
    if (!byId.has(id)) {
      const label = value === undefined ? [key] : [key, h("b", {}, "="), value];
      byId.set(id, newNode(node, id, { kind: "level", label, text: `${key}=${value ?? ""}`.toLowerCase() }));
    }
    node = byId.get(id);
  }
  Object.assign(node, { rule, again, path: rule.path, sentences: rule.words, kind: "level rule" });
  node.text += ` ${rule.path} ${rule.words.join(" ")}`.toLowerCase();
  if (rule.limits.length === 1) {
    node.words = grouped(rule.limits[0].words);
    node.tags = tags(rule, rule.limits[0]);
    node.results = (rules) => again(rules).limits[0].results;
  } else if (rule.limits.length === 0) {
    node.words = rule.words[0];
    node.results = (rules) => again(rules).results;
  } else {
    node.words = counted(rule.limits.length, "limit");
    rule.limits.forEach((limit, i) => {
      newNode(node, JSON.stringify([...way, null, i]), {
        kind: "limit", label: [limit.path.slice(rule.path.length)], words: grouped(limit.words), tags: tags(rule, limit), rule, again,
        path: limit.path, sentences: [rule.words[i]], results: (rules) => again(rules).limits[i].results,
      });
    });
  }
}

function tags(rule, limit) {
  return [limit.shadow && "tried out", rule.quota && "quota"].filter(Boolean);
}
