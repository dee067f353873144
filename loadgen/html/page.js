"use strict";
(function () {
  const colors = ["#0969da", "#cf222e", "#1a7f37", "#8250df", "#bf8700", "#57606a"];
  const root = document.getElementById("plots");
  const width = Math.min(1100, root.clientWidth || 1000);

  function plot(title, opts, data) {
    const h = document.createElement("h2");
    h.textContent = title;
    const div = document.createElement("div");
    div.className = "plot";
    root.append(h, div);
    new uPlot(Object.assign({ width: width, height: 280 }, opts), data, div);
  }

  // merge puts several (x, y) lines on one x axis, as uPlot wants them.
  function merge(lines) {
    const xs = [...new Set(lines.flatMap((l) => l.x))].sort((a, b) => a - b);
    return [xs].concat(lines.map((l) => {
      const at = new Map(l.x.map((x, i) => [x, l.y[i]]));
      return xs.map((x) => (at.has(x) ? at.get(x) : null));
    }));
  }

  const run = (i) => "run " + i + ((reports[i].not_valid || []).length ? " (not valid)" : "");

  function names(pick) {
    return [...new Set(reports.flatMap((r) => Object.keys(pick(r) || {})))].sort();
  }

  // Percentile curves: x is 1/(1-p) on a logarithmic axis, so that the tail has room.
  for (const name of names((r) => r.curves)) {
    const lines = [];
    reports.forEach((r, i) => {
      const c = (r.curves || {})[name];
      if (c && c.length) lines.push({ label: run(i), x: c.map((p) => 1 / (1 - p[0] / 100)), y: c.map((p) => p[1]) });
    });
    if (!lines.length) continue;
    plot(name + ", by percentile", {
      scales: { x: { time: false, distr: 3 } },
      axes: [{ label: "percentile", values: (u, vs) => vs.map((v) => (v ? +(100 * (1 - 1 / v)).toFixed(4) + "%" : "")) }, { label: "ms" }],
      series: [{ label: "percentile", value: (u, v) => (v ? +(100 * (1 - 1 / v)).toFixed(4) + "%" : "") }].concat(
        lines.map((l, i) => ({ label: l.label, stroke: colors[i % colors.length], width: 2, spanGaps: true }))),
    }, merge(lines));
  }

  for (const name of names((r) => r.series)) {
    const lines = [];
    let unit = "";
    reports.forEach((r, i) => {
      const s = (r.series || {})[name];
      if (s && s.t.length) { unit = s.unit; lines.push({ label: run(i), x: s.t, y: s.v }); }
    });
    if (!lines.length) continue;
    plot(name + " over time", {
      scales: { x: { time: false } },
      axes: [{ label: "seconds" }, { label: unit }],
      series: [{ label: "seconds" }].concat(lines.map((l, i) => ({ label: l.label, stroke: colors[i % colors.length], width: 2, spanGaps: true }))),
    }, merge(lines));
  }

  // Fail-over timeline: per round, how long each moment came after the stop was sent.
  reports.forEach((r, i) => {
    const rounds = ((r.failover || {}).timeline || []);
    if (!rounds.length) return;
    const moments = ["stop_answered_ms", "first_ack_ms", "first_read_ms"];
    plot("fail-over timeline, " + run(i), {
      scales: { x: { time: false } },
      axes: [{ label: "round" }, { label: "ms after the stop was sent (slowest partition)" }],
      series: [{ label: "round" }].concat(moments.map((m, k) => ({ label: m, stroke: colors[k], width: 2, points: { show: true, size: 7 } }))),
    }, [rounds.map((x, n) => n + 1)].concat(moments.map((m) => rounds.map((x) => x[m]))));
  });
})();
