// Numbers and times as people read them.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export function number(n) {
  return whole.format(n);
}

const rounded = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 });

// short is a number that has room in a narrow column: 12,345,678 is 12.3M.
export function short(n) {
  return n < 1e7 ? number(n) : rounded.format(n);
}

// grouped has the number that words begin with in groups of three digits.
export function grouped(words) {
  return words.replace(/^\d+/, (n) => number(Number(n)));
}

const twoDigits = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 2 });

export function milliseconds(n) {
  return `${twoDigits.format(n)} ms`;
}

// clock is a time of today, or the date with it.
export function clock(date) {
  const time = date.toLocaleTimeString("en-GB");
  return date.toDateString() === new Date().toDateString() ? time : `${date.toLocaleDateString("en-GB")}, ${time}`;
}

// rate is so many a second.
export function rate(n) {
  if (n > 0 && n < 0.1) {
    return "<0.1";
  }
  return n < 100 ? n.toFixed(1) : number(n);
}

// share is a part of a whole, in percent.
export function share(part, all) {
  if (part === 0 || all === 0) {
    return "";
  }
  const percent = (100 * part) / all;
  return percent < 1 ? "<1%" : `${Math.floor(percent)}%`;
}

const units = [
  ["d", 86400],
  ["h", 3600],
  ["m", 60],
  ["s", 1],
];

// span is a number of seconds in its two greatest units.
export function span(seconds) {
  let left = Math.max(0, Math.ceil(seconds));
  const parts = [];
  for (const [name, size] of units) {
    if (left >= size && parts.length < 2) {
      parts.push(`${Math.floor(left / size)}${name}`);
      left %= size;
    } else if (parts.length > 0) {
      break;
    }
  }
  return parts.join(" ") || "0s";
}

// ago is how long before now, both in the service's time, something was.
export function ago(time, now) {
  const seconds = Math.floor((Date.parse(now) - Date.parse(time)) / 1000);
  return seconds < 1 ? "just now" : `${span(seconds)} ago`;
}

// counted is a number of things.
export function counted(n, one, several = `${one}s`) {
  return `${number(n)} ${n === 1 ? one : several}`;
}
