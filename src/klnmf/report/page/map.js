// The map: a circle for each topic, moved just enough that circles do not overlap.
const HIGHEST_MAP = 520;
const LETTERS_FIT = 8;

function circleRadii(width, height) {
  const area = 0.3 * width * height;
  const smallest = Math.min(10, Math.sqrt((0.4 * width * height) / (topics.length * Math.PI)));
  const largest = 0.16 * Math.min(width, height);
  return topics.map((topic) => Math.min(largest, Math.max(smallest, Math.sqrt((area * topic.size) / Math.PI))));
}

function placedCircles(width, height) {
  const radii = circleRadii(width, height);
  const edge = Math.max(...radii) + 4;
  const [x, y] = [0, 1].map((axis) => {
    const along = topics.map((topic) => topic.position[axis]);
    const [low, high] = [Math.min(...along), Math.max(...along)];
    return { middle: (low + high) / 2, span: Math.max(high - low, 1e-6) };
  });
  const scale = Math.min((width - 2 * edge) / x.span, (height - 2 * edge) / y.span); // one for both
  const circles = topics.map((topic, i) => ({
    radius: radii[i],
    x: width / 2 + scale * (topic.position[0] - x.middle),
    y: height / 2 - scale * (topic.position[1] - y.middle),
  }));
  for (let round = 0; round < 400; round++) {
    let moved = false;
    for (let i = 0; i < circles.length; i++) {
      for (let j = i + 1; j < circles.length; j++) {
        const [a, b] = [circles[i], circles[j]];
        let [dx, dy] = [b.x - a.x, b.y - a.y];
        let distance = Math.hypot(dx, dy);
        const wanted = a.radius + b.radius + 1.5;
        if (distance >= wanted - 0.1) continue;
        if (distance < 1e-6) [dx, dy, distance] = [Math.cos(j), Math.sin(j), 1]; // the same place
        const push = (wanted - Math.min(distance, wanted)) / 2 / distance || 0.5;
        a.x -= push * dx; a.y -= push * dy;
        b.x += push * dx; b.y += push * dy;
        moved = true;
      }
    }
    for (const c of circles) {
      c.x = Math.min(width - c.radius - 2, Math.max(c.radius + 2, c.x));
      c.y = Math.min(height - c.radius - 2, Math.max(c.radius + 2, c.y));
    }
    if (!moved) break;
  }
  return circles;
}

function showMap() {
  const chart = document.querySelector("#map .chart");
  const readout = byId("map-readout");
  let reachable = topics[0].id; // the Tab key reaches one circle; arrow keys move on from there

  const say = (id) => {
    const topic = topicOf.get(id);
    readout.replaceChildren(make("b", {}, fullName(topic)), `, ${percent(topic.size)} of all counts`);
    if (!modes) readout.append(`, largest ${terms.component} in ${plural(topic.leading, terms.sample)}`);
    if (found.word !== null && id === chosen) readout.append(`. ${capital(terms.component)}s that hardly use “`, named(data.words[found.word]), "” are faint.");
  };
  const step = (from, by) => {
    const next = topics[(topicOf.get(from).rank + by + topics.length) % topics.length].id;
    reachable = next;
    for (const bubble of chart.querySelectorAll(".bubble")) {
      const here = Number(bubble.dataset.topic) === next;
      bubble.setAttribute("tabindex", here ? "0" : "-1");
      if (here) bubble.focus();
    }
  };
  const bubbleOf = (topic, circle) => {
    const bubble = draw(
      "g",
      { class: "bubble", role: "button", "data-topic": topic.id, tabindex: topic.id === reachable ? "0" : "-1", "aria-label": `${capital(terms.component)} ${topic.id}: ${topic.name}, ${percent(topic.size)}` },
      draw("circle", { cx: circle.x, cy: circle.y, r: circle.radius, fill: topic.colour }),
    );
    if (circle.radius >= LETTERS_FIT) {
      const label = draw("text", { x: circle.x, y: circle.y }, String(topic.id));
      label.style.fontSize = `${Math.min(14, Math.max(9, circle.radius * 0.75))}px`;
      bubble.append(label);
    }
    bubble.addEventListener("click", () => visit(topic.id));
    bubble.addEventListener("pointerenter", () => say(topic.id));
    bubble.addEventListener("focus", () => say(topic.id));
    bubble.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") visit(topic.id);
      else if (event.key === "ArrowRight" || event.key === "ArrowDown") step(topic.id, 1);
      else if (event.key === "ArrowLeft" || event.key === "ArrowUp") step(topic.id, -1);
      else return;
      event.preventDefault();
    });
    return bubble;
  };
  const mark = () => {
    for (const bubble of chart.querySelectorAll(".bubble")) {
      const id = Number(bubble.dataset.topic);
      bubble.classList.toggle("selected", id === chosen);
      bubble.classList.toggle("dimmed", found.word !== null && shareIn(data.word_topics[found.word], id) === 0);
    }
  };
  document.querySelector(".overview").hidden = false;
  onWidth(chart, (width) => {
    const height = Math.min(HIGHEST_MAP, Math.round(0.9 * width));
    const circles = placedCircles(width, height);
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `Map of the ${terms.component}s` });
    // Large circles first, so that small ones lie on top if there is no room.
    svg.append(...topics.map((topic, i) => bubbleOf(topic, circles[i])));
    chart.replaceChildren(svg);
    mark();
  });
  say(topics[0].id);
  whenChosen((id) => {
    if (id !== null) say(id);
    mark();
  });
}
