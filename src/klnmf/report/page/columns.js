// Mean shares of the topics by a column of the metadata: lines with a band over times and numbers,
// points with bars for categories.
const PARTS = 10000; // shares are in ten-thousandths
const LINES = 5; // topics drawn beside the one that is shown

// What a group of a column is: a value, or a period of time, of which a week is named by its Monday.
const groupTitle = (column) => (column.every ? `${capital(column.name)} (${column.every === "week" ? "week from" : column.every})` : capital(column.name));

// Tops of the axis: the largest interval of the topic, the largest mean of the other lines.
function highestShare(column, topic, others) {
  const own = column.upper[topic.id].map((value, i) => value ?? column.share[topic.id][i]);
  return Math.max(...own, ...others.flatMap((other) => column.share[other.id]), 1) / PARTS;
}

function shareAxis(svg, width, edge, y, highest) {
  for (const value of roundSteps(highest, 5)) {
    svg.append(draw("line", { class: "grid", x1: edge.left, x2: width - edge.right, y1: y(value), y2: y(value) }));
    svg.append(draw("text", { x: edge.left - 8, y: y(value) + 4, "text-anchor": "end" }, value ? percent(value) : "0"));
  }
}

function drawLines(column, topic, others, width) {
  const height = 320;
  const edge = { left: 52, right: 18, top: 10, bottom: 34 };
  const highest = 1.05 * highestShare(column, topic, others);
  const { at } = column;
  const [first, last] = [at[0], Math.max(at.at(-1), at[0] + 1)];
  const x = (value) => edge.left + 8 + ((value - first) / (last - first)) * (width - edge.left - edge.right - 16);
  const y = (share) => height - edge.bottom - (share / highest) * (height - edge.top - edge.bottom);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Mean share of ${terms.component} ${topic.id} by ${column.name}; the table has the numbers` });
  shareAxis(svg, width, edge, y, highest);
  let free = -Infinity; // right end of the last label
  column.groups.forEach((group, i) => {
    const half = 3.6 * group.length;
    if (x(at[i]) - half < free || x(at[i]) + half > width + 6) return;
    svg.append(draw("text", { x: x(at[i]), y: height - edge.bottom + 20, "text-anchor": "middle" }, group));
    free = x(at[i]) + half + 10;
  });
  const shares = (values) => values.map((value) => (value === null ? null : value / PARTS));
  for (const other of others) {
    const line = curve("other", at, shares(column.share[other.id]), x, y);
    line.style.stroke = other.colour;
    svg.append(line);
  }
  const [share, lower, upper] = [column.share, column.lower, column.upper].map((ends) => shares(ends[topic.id]));
  at.forEach((value, i) => {
    if (lower[i] === null) return;
    if (i > 0 && lower[i - 1] !== null) {
      const corners = [[at[i - 1], lower[i - 1]], [at[i - 1], upper[i - 1]], [value, upper[i]], [value, lower[i]]];
      svg.append(draw("polygon", { class: "band", points: corners.map(([a, s]) => `${x(a).toFixed(1)},${y(s).toFixed(1)}`).join(" "), fill: topic.colour }));
    }
    svg.append(draw("line", { class: "interval", x1: x(value), x2: x(value), y1: y(lower[i]), y2: y(upper[i]), stroke: topic.colour }));
  });
  const main = curve("main", at, share, x, y);
  main.style.stroke = topic.colour;
  svg.append(main, ...at.map((value, i) => draw("circle", { class: "mean", cx: x(value), cy: y(share[i]), r: 4, fill: topic.colour })));
  return svg;
}

function drawPoints(column, topic, width) {
  const line = 24;
  const longest = Math.max(...column.groups.map((group) => group.length));
  const edge = { left: Math.min(0.42 * width, 14 + 7 * longest), right: 24, top: 8, bottom: 26 };
  const height = edge.top + edge.bottom + line * column.groups.length;
  const highest = 1.05 * highestShare(column, topic, []);
  const x = (share) => edge.left + (share / highest) * (width - edge.left - edge.right);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Mean share of ${terms.component} ${topic.id} by ${column.name}; the table has the numbers` });
  for (const value of roundSteps(highest, Math.max(2, Math.floor(width / 120)))) {
    svg.append(draw("line", { class: "grid", x1: x(value), x2: x(value), y1: edge.top, y2: height - edge.bottom }));
    svg.append(draw("text", { x: x(value), y: height - 6, "text-anchor": "middle" }, value ? percent(value) : "0"));
  }
  const fitting = Math.floor((edge.left - 14) / 7);
  column.groups.forEach((group, i) => {
    const y = edge.top + line * (i + 0.5);
    const [share, lower, upper] = [column.share, column.lower, column.upper].map((ends) => ends[topic.id][i]);
    svg.append(draw("text", { x: edge.left - 10, y: y + 4, "text-anchor": "end" }, group.length > fitting ? `${group.slice(0, fitting - 1)}…` : group));
    if (lower !== null) svg.append(draw("line", { class: "interval strong", x1: x(lower / PARTS), x2: x(upper / PARTS), y1: y, y2: y, stroke: topic.colour }));
    svg.append(draw("circle", { class: "mean", cx: x(share / PARTS), cy: y, r: 5, fill: topic.colour }));
  });
  return svg;
}

function columnTable(column, topic) {
  const share = (ends, i) => ends[topic.id][i];
  const interval = (i) => (share(column.lower, i) === null ? "–" : `${percent(share(column.lower, i) / PARTS).slice(0, -2)} to ${percent(share(column.upper, i) / PARTS)}`);
  const rows = column.groups.map((_, i) => i);
  sortableTable(byId("column-table"), [
    { title: groupTitle(column), value: (i) => (column.ordered ? column.at[i] : column.groups[i]), cell: (i) => named(column.groups[i]) },
    { title: `${capital(terms.sample)}s`, number: true, wide: true, value: (i) => column.n[i], cell: (i) => count(column.n[i]) },
    { title: "Mean share", number: true, value: (i) => share(column.share, i), cell: (i) => percent(share(column.share, i) / PARTS) },
    { title: "95 % interval", number: true, value: (i) => share(column.lower, i) ?? -1, cell: interval },
  ], rows, column.ordered ? 0 : 2);
}

function columnHint(column) {
  const parts = [`Mean of the shares in the ${terms.sample}s of a group, where every ${terms.sample} counts the same, with a 95 % interval for groups of two or more.`];
  if (column.missing) parts.push(`${plural(column.missing, terms.sample)} without a value ${column.missing === 1 ? "is" : "are"} left out.`);
  if (data.left_out.length) parts.push(`Not shown, because of too many values or only one: ${data.left_out.join(", ")}.`);
  return parts.join(" ");
}

function showColumns() {
  if (data.columns.length === 0) return;
  const [select, period, choice, legend] = ["column", "column-period", "column-topic", "column-legend"].map(byId);
  const chart = document.querySelector("#column-chart .chart");
  const names = [...new Set(data.columns.map((column) => column.name))];
  select.append(...names.map((name, i) => make("option", { value: i }, name)));
  // A column of times is there once for each period.
  const listPeriods = () => {
    const same = data.columns.filter((column) => column.name === names[Number(select.value)]);
    period.replaceChildren(...same.map((column) => make("option", { value: data.columns.indexOf(column) }, column.every ?? "")));
    period.parentElement.hidden = same[0].every === null;
  };
  listPeriods();
  choice.append(...topics.map((topic) => make("option", { value: topic.id }, `${topic.id} · ${topic.name}`)));
  const largest = topics.slice(0, LINES);
  legend.append(...largest.map(legendButton));
  let width = 0;
  const show = () => {
    const column = data.columns[Number(period.value)];
    const topic = topicOf.get(Number(choice.value));
    byId("columns-hint").textContent = columnHint(column);
    byId("column-chart-heading").textContent = `Mean share by ${column.name}${column.every ? `, by ${column.every}` : ""}`;
    byId("column-table-heading").replaceChildren(fullName(topic));
    legend.hidden = !column.ordered;
    const others = column.ordered ? largest.filter((other) => other !== topic) : [];
    chart.replaceChildren(column.ordered ? drawLines(column, topic, others, width) : drawPoints(column, topic, width));
    columnTable(column, topic);
  };
  onWidth(chart, (known) => { width = known; show(); });
  select.addEventListener("change", () => { listPeriods(); show(); });
  period.addEventListener("change", show);
  choice.addEventListener("change", () => choose(Number(choice.value)));
  whenChosen((id) => {
    markButtons(legend, id);
    if (id !== null) choice.value = String(id);
    show();
  });
}
