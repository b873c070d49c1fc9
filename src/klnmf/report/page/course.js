// Modes of a tensor that have an order, such as dates: the share of each label as a line.
const modes = data.modes ?? null; // of a matrix, there are none

const COURSE_HEIGHT = 104;

function drawCourse(mode, topic, shares, width, readout) {
  const edge = { left: 2, right: 2, top: 8, bottom: 20 };
  const highest = Math.max(...shares, ...mode.all) || 1;
  const [first, last] = [mode.at[0], mode.at.at(-1)];
  const x = (value) => edge.left + ((value - first) / (last - first || 1)) * (width - edge.left - edge.right);
  const y = (share) => COURSE_HEIGHT - edge.bottom - (share / highest) * (COURSE_HEIGHT - edge.top - edge.bottom);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${COURSE_HEIGHT}`, role: "img", "aria-label": `Share of each ${mode.name} in ${terms.component} ${topic.id}; ${courseInWords(mode, shares)}` });
  const colour = topic.isGrey ? "var(--accent)" : topic.colour;
  const corners = mode.at.map((value, i) => `${x(value).toFixed(1)},${y(shares[i]).toFixed(1)}`);
  const main = curve("main", mode.at, shares, x, y);
  main.style.stroke = colour;
  svg.append(
    draw("line", { class: "grid", x1: edge.left, x2: width - edge.right, y1: y(0), y2: y(0) }),
    draw("polygon", { class: "band", points: [`${x(first)},${y(0)}`, ...corners, `${x(last)},${y(0)}`].join(" "), fill: colour }),
    curve("everything", mode.at, mode.all, x, y),
    main,
    draw("text", { x: edge.left, y: COURSE_HEIGHT - 4 }, mode.labels[0]),
    draw("text", { x: width - edge.right, y: COURSE_HEIGHT - 4, "text-anchor": "end" }, mode.labels.at(-1)),
  );
  const point = draw("circle", { class: "mean", r: 4, fill: colour, visibility: "hidden" });
  svg.append(point);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = first + ((event.clientX - box.left) / box.width) * (last - first);
    const i = mode.at.reduce((best, value, place) => (Math.abs(value - at) < Math.abs(mode.at[best] - at) ? place : best), 0);
    for (const [name, value] of [["cx", x(mode.at[i])], ["cy", y(shares[i])], ["visibility", "visible"]]) point.setAttribute(name, value);
    readout.textContent = `${mode.labels[i]}: ${percent(shares[i])} (all counts: ${percent(mode.all[i])})`;
  });
  svg.addEventListener("pointerleave", () => {
    point.setAttribute("visibility", "hidden");
    readout.textContent = courseInWords(mode, shares);
  });
  return svg;
}

function courseInWords(mode, shares) {
  const top = shares.indexOf(Math.max(...shares));
  if (!(shares[top] > 0)) return "empty";
  return `most in ${mode.labels[top]} (${percent(shares[top])})`;
}

function makeCourse(mode, topic, { course }) {
  const readout = make("span", {}, courseInWords(mode, course));
  const chart = make("div", { class: "chart" });
  const summed = mode.step > 1 ? `, ${mode.step} at a time` : "";
  const figure = make("figure", { class: "course" }, make("figcaption", {}, named(capital(mode.name)), `${summed}: `, readout), chart);
  onWidth(chart, (width) => chart.replaceChildren(drawCourse(mode, topic, course, width, readout)));
  return figure;
}
