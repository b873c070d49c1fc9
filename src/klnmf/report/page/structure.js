// The strips: samples side by side, each a stack of the shares of its topics.
const FULL = 1000; // shares are in thousandths

// One outline per topic, with a box for each sample that uses it.
function stripPaths(members) {
  const outlines = new Map();
  members.forEach((sample, column) => {
    const packed = samples.shares[sample];
    const shares = [];
    for (let i = 0; i < packed.length; i += 2) shares.push([packed[i], packed[i + 1]]);
    shares.sort((a, b) => topicOf.get(a[0]).rank - topicOf.get(b[0]).rank);
    let top = 0;
    for (const [id, share] of shares) {
      const height = Math.min(share, FULL - top);
      if (!outlines.has(id)) outlines.set(id, []);
      outlines.get(id).push(`M${column} ${top}h1v${height}h-1z`);
      top += height;
    }
  });
  return [...outlines].map(([id, boxes]) =>
    draw("path", { d: boxes.join(""), fill: topicOf.get(id).colour, "data-topic": id }));
}

function describeSample(sample) {
  const packed = samples.shares[sample];
  const parts = [];
  for (let i = 0; i < packed.length && i < 6; i += 2) {
    parts.push(parts.length ? "; " : ": ", fullName(topicOf.get(packed[i])), ` ${percent(packed[i + 1] / FULL)}`);
  }
  return [make("b", {}, named(samples.names[sample])), ...parts];
}

function strip(group, readout) {
  const members = group.samples;
  const label = data.labelled ? group.name : `All ${terms.sample}s`;
  const svg = draw(
    "svg",
    { viewBox: `0 0 ${Math.max(members.length, 1)} ${FULL}`, preserveAspectRatio: "none", "shape-rendering": "crispEdges", role: "img", "aria-label": `${label}: shares of the ${terms.component}s in ${plural(members.length, terms.sample)}` },
    ...stripPaths(members),
  );
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * members.length);
    const sample = members[Math.min(members.length - 1, Math.max(0, column))];
    if (sample !== undefined) readout.replaceChildren(...describeSample(sample));
  });
  if (!data.labelled) return make("div", { class: "strip alone" }, svg);
  const drawn = members.length < group.count ? `${members.length} of ${count(group.count)}` : plural(group.count, terms.sample);
  return make("div", { class: "strip" }, make("p", {}, named(group.name, "b"), make("br"), make("span", { class: "hint" }, drawn)), svg);
}

function legendButton(topic) {
  const button = make("button", { type: "button", "aria-pressed": "false", "data-topic": topic.id }, swatch(topic), fullName(topic));
  button.addEventListener("click", () => choose(chosen === topic.id ? null : topic.id));
  return make("li", {}, button);
}

function markButtons(legend, id) {
  for (const button of legend.querySelectorAll("button")) button.setAttribute("aria-pressed", String(Number(button.dataset.topic) === id));
}

function showStructure() {
  const figure = byId("structure");
  const legend = byId("structure-legend");
  const strips = figure.querySelector(".strips");
  const drawn = data.groups.reduce((sum, group) => sum + group.samples.length, 0);
  const all = data.groups.reduce((sum, group) => sum + group.count, 0);
  if (drawn === 0) return;
  const which = drawn < all ? `${count(drawn)} of ${plural(all, terms.sample)}, chosen at random` : `All ${plural(all, terms.sample)}`;
  byId("structure-hint").textContent =
    `${which}. Each column is a ${terms.sample}; its colours show the shares of its ${terms.component}s. ${capital(terms.sample)}s with the same largest ${terms.component} are side by side. Click a ${terms.component} to highlight it.`;
  const coloured = topics.filter((topic) => !topic.isGrey && topic.size > 0);
  legend.append(...coloured.map(legendButton));
  const others = topics.filter((topic) => topic.size > 0).length - coloured.length;
  if (others > 0) {
    const sign = make("span", { class: "swatch", "aria-hidden": "true" });
    sign.style.background = greys[0];
    legend.append(make("li", { class: "others" }, sign, `${plural(others, `smaller ${terms.component}`)}, in greys`));
  }
  strips.append(...data.groups.filter((group) => group.samples.length).map((group) => strip(group, byId("structure-readout"))));
  figure.hidden = false;
  whenChosen((id) => {
    strips.classList.toggle("choosing", id !== null);
    for (const path of strips.querySelectorAll("path")) {
      const here = Number(path.dataset.topic) === id;
      path.classList.toggle("chosen", here);
      const topic = topicOf.get(Number(path.dataset.topic));
      path.setAttribute("fill", here && topic.isGrey ? "var(--accent)" : topic.colour);
    }
    markButtons(legend, id);
  });
}
