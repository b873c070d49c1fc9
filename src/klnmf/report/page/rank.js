// Held-out deviance with standard errors, and stability, against the number of topics.
function drawRank(width) {
  const { rank: ranks, difference, standard_error: error, stability, is_best: isBest } = data.rank;
  const best = ranks[isBest.indexOf(true)];
  const height = 280;
  const edge = { left: 52, right: 40, top: 10, bottom: 42 };
  const [first, last] = [ranks[0], Math.max(ranks.at(-1), ranks[0] + 1)];
  const highest = Math.max(...difference.map((value, i) => value + error[i])) || 1;
  const x = (rank) => edge.left + ((rank - first) / (last - first)) * (width - edge.left - edge.right);
  const at = (share) => height - edge.bottom - share * (height - edge.top - edge.bottom);
  const y = (value) => at(value / highest);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Held-out deviance and stability against the number of ${terms.component}s; ${best} was chosen` });
  for (const value of roundSteps(highest, 5)) {
    svg.append(draw("line", { class: "grid", x1: edge.left, x2: width - edge.right, y1: y(value), y2: y(value) }));
    svg.append(draw("text", { x: edge.left - 8, y: y(value) + 4, "text-anchor": "end" }, String(value)));
  }
  for (const share of [0, 0.5, 1]) svg.append(draw("text", { x: width - edge.right + 10, y: at(share) + 4 }, String(share)));
  const stride = Math.ceil(ranks.length / Math.max(2, Math.floor(width / 45)));
  ranks.forEach((rank, i) => {
    if (i % stride === 0) svg.append(draw("text", { x: x(rank), y: height - edge.bottom + 18, "text-anchor": "middle" }, String(rank)));
  });
  svg.append(draw("text", { x: (edge.left + width - edge.right) / 2, y: height - 4, "text-anchor": "middle" }, `${terms.component}s`));
  svg.append(draw("line", { class: "curve tol", x1: x(best), x2: x(best), y1: edge.top, y2: at(0) }));
  svg.append(curve("excess", ranks, stability, x, at), curve("gap", ranks, difference, x, y));
  ranks.forEach((rank, i) => {
    const [low, high] = [Math.max(0, difference[i] - error[i]), difference[i] + error[i]];
    svg.append(draw("line", { class: "curve gap", x1: x(rank), x2: x(rank), y1: y(low), y2: y(high) }));
    svg.append(draw("circle", { class: "final", cx: x(rank), cy: y(difference[i]), r: 3.5 }));
  });
  return svg;
}

function showRank() {
  if (!data.rank) return;
  const chart = document.querySelector("#rank-chart .chart");
  byId("rank-chart").hidden = false;
  onWidth(chart, (width) => chart.replaceChildren(drawRank(width)));
}
