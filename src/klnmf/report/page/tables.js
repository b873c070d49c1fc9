// Tables that can be sorted by any column.
// column: { title, hint, value(row), cell(row), number, wide, falling }
function sortableTable(table, columns, rows, sortedBy) {
  const body = make("tbody");
  const heads = columns.map((column, at) => {
    const button = make("button", { type: "button", title: column.hint }, column.title);
    const head = make("th", { scope: "col", class: classesOf(column) }, button);
    button.addEventListener("click", () => {
      const falling = head.hasAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : Boolean(column.number);
      sortBy(at, falling);
    });
    return head;
  });
  const lines = rows.map((row) => ({
    row,
    element: make("tr", {}, ...columns.map((column) => make("td", { class: classesOf(column) }, column.cell(row)))),
  }));

  function sortBy(at, falling) {
    const { value } = columns[at];
    const sign = falling ? -1 : 1;
    lines.sort((a, b) => {
      const [first, second] = [value(a.row), value(b.row)];
      if (typeof first === "number") return sign * (first - second);
      return sign * first.localeCompare(second, undefined, { numeric: true });
    });
    heads.forEach((head, i) => (i === at ? head.setAttribute("aria-sort", falling ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
    body.append(...lines.map((line) => line.element));
  }

  table.replaceChildren(make("thead", {}, make("tr", {}, ...heads)), body);
  sortBy(sortedBy, Boolean(columns[sortedBy].number));
}

// Says under a table that is cut off how many of its rows are below.
function showWhatIsBelow(scroller) {
  const sign = make("p", { class: "below", "aria-hidden": "true" });
  const look = () => {
    const edge = scroller.getBoundingClientRect().bottom;
    const rows = [...scroller.querySelectorAll("tbody tr")].filter((row) => row.getBoundingClientRect().bottom > edge + 4);
    sign.textContent = rows.length ? `↓ ${count(rows.length)} more` : "";
    scroller.classList.toggle("cut", rows.length > 0);
  };
  scroller.after(sign);
  scroller.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(scroller.querySelector("table"));
  onWidth(scroller, look);
}

const classesOf = (column) => [column.number ? "number" : "", column.wide ? "wide-only" : ""].join(" ").trim() || undefined;

function showTopicTable() {
  const coherence = { title: "Coherence", number: true, value: (t) => t.coherence ?? -2, cell: (t) => t.coherence?.toFixed(2) ?? "–" };
  sortableTable(byId("topic-table"), [
    { title: "No.", number: true, value: (t) => t.id, cell: (t) => String(t.id) },
    { title: capital(terms.component), value: (t) => t.name, cell: (t) => linkTo(t, {}, named(t.name)) },
    { title: "Share", number: true, value: (t) => t.size, cell: (t) => percent(t.size) },
    ...(topics.some((t) => t.coherence !== null) ? [coherence] : []),
    ...(modes ? [] : [{ title: "Largest in", number: true, wide: true, value: (t) => t.leading, cell: (t) => count(t.leading) }]),
  ], topics, 2);
}

function showSampleTable() {
  const rows = samples.names.map((_, i) => i);
  if (rows.length === 0) return;
  const main = (i) => topicOf.get(samples.shares[i][0]);
  const share = (i) => (samples.shares[i].length ? samples.shares[i][1] / FULL : 0);
  const columns = [
    { title: capital(terms.sample), value: (i) => samples.names[i], cell: (i) => named(samples.names[i]) },
    { title: `Largest ${terms.component}`, value: (i) => main(i)?.name ?? "", cell: (i) => (main(i) ? linkTo(main(i), { sample: i }, fullName(main(i))) : "") },
    { title: "Its share", number: true, value: share, cell: (i) => percent(share(i)) },
    { title: "Counts", number: true, wide: true, value: (i) => samples.totals[i], cell: (i) => count(samples.totals[i]) },
  ];
  if (data.labelled) columns.splice(1, 0, { title: "Label", wide: true, value: (i) => samples.labels[i], cell: (i) => named(samples.labels[i]) });
  byId("sample-list").hidden = false;
  sortableTable(byId("sample-table"), columns, rows, 0);
}
