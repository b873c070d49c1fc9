// Convergence against time, on a logarithmic axis.
function roundSteps(largest, most) {
  const rough = largest / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= rough);
  const steps = [];
  for (let value = 0; value <= largest * 1.0001; value += step) steps.push(Number(value.toPrecision(6)));
  return steps;
}

const superscript = (exponent) => String(exponent).replace(/[-0-9]/g, (sign) => (sign === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(sign)]));

function curve(kind, seconds, values, x, y) {
  let path = "";
  let pen = "M";
  values.forEach((value, i) => {
    if (value === null) { pen = "M"; return; }
    path += `${pen}${x(seconds[i]).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
  });
  return draw("path", { class: `curve ${kind}`, d: path });
}

function drawConvergence(width) {
  const { seconds, gap, excess, final } = data.history;
  const height = 280;
  const edge = { left: 44, right: 14, top: 8, bottom: 42 };
  const end = seconds.at(-1) || 1;
  const drawn = [...gap, ...excess, ...final, data.tol].filter((value) => value !== null && value > 0);
  const low = Math.floor(Math.log10(Math.min(...drawn)));
  const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...drawn))));
  const x = (value) => edge.left + (value / end) * (width - edge.left - edge.right);
  const y = (value) => edge.top + ((high - Math.log10(value)) / (high - low)) * (height - edge.top - edge.bottom);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Optimality gap and objective against time, over ${end} seconds` });
  const stride = Math.ceil((high - low) / 8);
  for (let exponent = high; exponent >= low; exponent -= stride) {
    const at = y(10 ** exponent);
    svg.append(draw("line", { class: "grid", x1: edge.left, x2: width - edge.right, y1: at, y2: at }));
    svg.append(draw("text", { x: edge.left - 8, y: at + 4, "text-anchor": "end" }, `10${superscript(exponent)}`));
  }
  for (const value of roundSteps(end, Math.max(2, Math.floor(width / 110)))) {
    svg.append(draw("text", { x: x(value), y: height - edge.bottom + 18, "text-anchor": "middle" }, String(value)));
  }
  svg.append(draw("text", { x: (edge.left + width - edge.right) / 2, y: height - 4, "text-anchor": "middle" }, "seconds"));
  if (data.tol > 0) svg.append(draw("line", { class: "curve tol", x1: edge.left, x2: width - edge.right, y1: y(data.tol), y2: y(data.tol) }));
  svg.append(curve("excess", seconds, excess, x, y), curve("gap", seconds, gap, x, y));
  if (final[0] !== null) svg.append(draw("circle", { class: "final", cx: x(end), cy: y(final[0]), r: 5 }));
  return svg;
}

function showConvergence() {
  const { seconds, gap, excess } = data.history;
  if (seconds.length === 0 || ![...gap, ...excess].some((value) => value !== null)) return;
  const chart = document.querySelector("#convergence .chart");
  byId("convergence").hidden = false;
  onWidth(chart, (width) => chart.replaceChildren(drawConvergence(width)));
}
