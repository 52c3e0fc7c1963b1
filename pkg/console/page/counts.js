// What became of descriptors, summed up.

export const none = { asked: 0, refused: 0, shadow: 0, failed: 0 };

// of reads a limit's results.
export function of(results) {
  const r = results ?? {};
  let asked = 0;
  for (const [result, n] of Object.entries(r)) {
    if (result !== "replaced") {
      asked += n;
    }
  }
  return { asked, refused: r.over_limit ?? 0, shadow: r.shadow_over_limit ?? 0, failed: r.failed ?? 0 };
}

export function plus(a, b) {
  return { asked: a.asked + b.asked, refused: a.refused + b.refused, shadow: a.shadow + b.shadow, failed: a.failed + b.failed };
}
