"use strict";
(() => {
  const body = document.querySelector("#rows tbody");
  const heads = [...document.querySelectorAll("#rows thead th")];
  const names = heads.map((head) => head.textContent);
  const rows = new Map([...body.rows].map((row) => [row.id, row]));
  const marks = new Map();
  for (const mark of document.querySelectorAll(".mark")) {
    const row = mark.dataset.row;
    marks.set(row, [...(marks.get(row) ?? []), mark]);
  }

  // ---- sorting: what has no value stands last, either way ----
  const value = (row, column) => {
    const cell = row.cells[column];
    if (!("value" in cell.dataset)) return cell.textContent;
    return cell.dataset.value === "" ? null : Number(cell.dataset.value);
  };
  const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true }));
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keyed = [...body.rows].map((row) => [value(row, column), row]);
      keyed.sort(([a], [b]) => {
        if (a === null || b === null) return (a === null) - (b === null);
        return down ? compare(b, a) : compare(a, b);
      });
      body.append(...keyed.map(([, row]) => row));
    });
  });

  // ---- filtering: every word must be there, no word with a minus may be ----
  const input = document.querySelector("#filter");
  const count = document.querySelector("#count");
  const filter = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter((word) => word && word !== "-");
    let shown = 0;
    for (const [id, row] of rows) {
      const text = row.textContent.toLowerCase();
      const fits = words.every((word) => (word[0] === "-" ? !text.includes(word.slice(1)) : text.includes(word)));
      row.hidden = !fits;
      shown += fits;
      for (const mark of marks.get(id) ?? []) mark.classList.toggle("faint", !fits);
    }
    count.textContent = `${shown} of ${rows.size} rows`;
  };
  input.addEventListener("input", filter);
  filter();

  // ---- a mark shows its row, a row shows its marks ----
  const tip = document.querySelector("#tip");
  const choose = (id, on) => {
    rows.get(id)?.classList.toggle("chosen", on);
    for (const mark of marks.get(id) ?? []) mark.classList.toggle("chosen", on);
  };
  const cell = (row, name) => row.cells[names.indexOf(name)].textContent;
  const tell = (row) => {
    const lines = [cell(row, "case")];
    const limit = cell(row, "% of limit");
    const speedup = cell(row, "speedup");
    const facts = [cell(row, "mean"), limit && `${limit} % of limit`, speedup && `${speedup}x`, cell(row, "bound")];
    lines.push(facts.filter(Boolean).join(", "), cell(row, "remarks"));
    tip.replaceChildren(Object.assign(document.createElement("b"), { textContent: cell(row, "variant") }));
    for (const line of lines.filter(Boolean)) {
      tip.append(Object.assign(document.createElement("div"), { textContent: line }));
    }
    tip.hidden = false;
  };
  const place = (event) => {
    const box = tip.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, innerWidth - box.width - 8);
    const below = event.clientY + 14 + box.height < innerHeight;
    tip.style.left = `${Math.max(left, 8)}px`;
    tip.style.top = `${below ? event.clientY + 14 : event.clientY - box.height - 10}px`;
  };
  for (const [id, found] of marks) {
    const row = rows.get(id);
    if (!row) continue;
    for (const mark of found) {
      mark.addEventListener("pointerenter", (event) => { choose(id, true); tell(row); place(event); });
      mark.addEventListener("pointermove", place);
      mark.addEventListener("pointerleave", () => { choose(id, false); tip.hidden = true; });
      mark.addEventListener("click", () => row.scrollIntoView({ block: "center", behavior: "smooth" }));
    }
  }
  for (const [id, row] of rows) {
    row.addEventListener("pointerenter", () => choose(id, true));
    row.addEventListener("pointerleave", () => choose(id, false));
  }
})();
