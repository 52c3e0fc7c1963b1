// Elements are made here, and nowhere from text: whatever a client chose stays text.
import { ago } from "./format.js";

// h makes an element. Properties are attributes, but for on…, which listen, and class. Children are nodes, texts, or nothing.
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

// s is h for SVG.
export function s(tag, properties = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) {
      continue;
    }
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.flat().filter((c) => c !== undefined && c !== null && c !== false));
  return element;
}

// byId is an element that the page has.
export function byId(id) {
  return document.getElementById(id);
}

// write replaces an element's text if it differs, so that selections and screen readers are left alone.
export function write(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

// age tells how long ago something was. It goes on telling when aged is called.
export function age(time, now) {
  return h("time", { datetime: time, title: time }, ago(time, now));
}

// aged has each age tell what it is now.
export function aged(now) {
  for (const element of document.getElementsByTagName("time")) {
    write(element, ago(element.dateTime, now));
  }
}

// Once holds an element's content, which is made anew only when what it shows has changed.
export class Once {
  constructor(element) {
    this.element = element;
    this.shown = undefined;
  }

  show(value, make) {
    const text = JSON.stringify(value);
    if (text === this.shown) {
      return;
    }
    this.shown = text;
    const held = this.element.contains(document.activeElement);
    this.element.replaceChildren(...[make(value)].flat());
    if (held) {
      this.element.closest("section").focus({ preventScroll: true });
    }
  }
}

// empty says what to do next where there is nothing to show.
export function empty(title, ...next) {
  return h("div", { class: "empty" }, h("strong", {}, title), next.length > 0 && h("p", {}, ...next));
}

// absent stands for what this build doesn't have.
export function absent() {
  return h("p", { class: "absent" }, "not available in this build");
}
