// A counter's last minutes, and their picture.
import { s } from "./dom.js";

const kept = 60;
const recent = 10; // seconds that a rate is taken over

// Series is what a counter was, each time it was read.
export class Series {
  constructor() {
    this.readings = []; // [seconds, count]
  }

  add(seconds, count) {
    const last = this.readings.at(-1);
    if (last && count < last[1]) {
      this.readings = []; // it began anew
    }
    this.readings.push([seconds, count]);
    if (this.readings.length > kept + 1) {
      this.readings.shift();
    }
  }

  // rates are how much a second it grew by between readings.
  rates() {
    return this.readings.slice(1).map(([at, n], i) => {
      const [before, was] = this.readings[i];
      return at > before ? (n - was) / (at - before) : 0;
    });
  }

  // rate is how much a second it grew by of late.
  rate() {
    const [at, n] = this.readings.at(-1) ?? [0, 0];
    const [from, was] = this.readings.find(([seconds]) => seconds >= at - recent) ?? [0, 0];
    return at > from ? (n - was) / (at - from) : 0;
  }
}

// draw makes the picture of a series: its newest reading is at the right edge.
export function draw(series, width, height, label) {
  const rates = series.rates();
  const top = Math.max(...rates, 0);
  const step = width / (kept - 1);
  const y = (n) => (top === 0 ? height - 1 : height - 1 - (n / top) * (height - 3));
  const points = rates.map((n, i) => `${(width - (rates.length - 1 - i) * step).toFixed(1)},${y(n).toFixed(1)}`);
  const picture = s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label });
  picture.append(s("line", { class: "ground", x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5 }));
  if (top > 0 && points.length > 1) {
    const from = points[0].split(",")[0];
    picture.append(
      s("polygon", { class: "under", points: `${from},${height} ${points.join(" ")} ${width},${height}` }),
      s("polyline", { class: "over", points: points.join(" ") }),
    );
  }
  return picture;
}
