// Asks once a second, and draws what there is.
import { every, get } from "./asking.js";
import { at, bytes, chart, eventLine, fill, make, mib, opener, say } from "./draw.js";
import * as story from "./story.js";

const STATES = ["failed", "attention", "ok"];
let last = null, kind = "";

function share(row, alone) {
  if (row.share_percent === null) return "–";
  // A container that is alone is not polled.
  return alone && row.share_percent === 0 ? "alone" : `${row.share_percent.toFixed(0)} %`;
}

function row(share_, alone, container) {
  const line = make("tr", { className: share_.class, role: "row" }), use = make("span", { className: "use" }, make("span"));
  use.firstChild.style.width = `${Math.min(100, (100 * share_.used_bytes) / (share_.memory_mib * 2 ** 20 || 1))}%`;
  line.append(
    make("th", { scope: "row", role: "rowheader", className: "name" }, opener(container.label, container.container_id),
      make("small", { text: share_.class })),
    make("td", { role: "cell", className: "number", text: share(share_, alone) }),
    make("td", { role: "cell", className: "number", text: `${bytes(share_.used_bytes)} of ${mib(share_.memory_mib)}` }, use),
    make("td", { role: "cell" }, stateChip(share_, container)),
  );
  return line;
}

function order(one, other) {
  return other.class.localeCompare(one.class) || one.label.localeCompare(other.label);
}

function stateChip(share_, container) {
  const odd = /killed|lost|advisory|paused/.exec(container.says);
  const text = odd ? container.says : share_.state;
  const held = /suspended \(|evict|restoring/.test(text) ? "held" : text === "running" ? "running" : "";
  return make("span", { className: `chip ${odd ? "failed" : held}`, text });
}

function gpu({ card, containers, busy }) {
  const total = card.memory_mib * 2 ** 20, alone = card.shares.length === 1;
  const chips = make("div", { className: "chips" }, make("span", { className: "chip", text: card.policy || "free" }));
  if (card.says !== "-") chips.append(make("span", { className: "chip attention", text: card.says }));
  const memory = make("div", { className: "memory" });
  for (const each of card.shares) {
    const part = make("span", { className: each.class, title: `${containers[each.id].label}: ${bytes(each.used_bytes)}` });
    part.style.width = `${(100 * each.used_bytes) / total}%`;
    memory.append(part);
  }
  const granted = make("i", { title: "granted" });
  granted.style.left = `${Math.min(100, (100 * card.granted_mib) / card.memory_mib)}%`;
  if (card.granted_mib) memory.append(granted);
  const charged = card.shares.reduce((sum, each) => sum + (each.share_percent ?? 0), 0);
  const percent = alone && !charged ? "alone" : `${Math.min(100, charged).toFixed(0)} %`;
  const sums = [["granted", mib(card.granted_mib)], ["lent", mib(card.reclaimable_mib || 0)],
    ["evicted", bytes(card.evicted_bytes || 0)]];
  const made = make("article", { className: "gpu" },
    make("header", {}, make("h3", { text: `GPU ${card.index} ` }, make("small", { text: card.name })), chips),
    make("div", { className: "meters" },
      make("div", { className: "meter" },
        make("p", {}, make("b", { text: percent }), make("span", { text: alone && !charged ? " not measured" : " charged" })),
        chart({ run: busy }, "spark", `Charged of GPU ${card.index} over time, now ${percent}`)),
      make("div", { className: "meter" },
        make("p", {}, make("b", { text: bytes(card.used_bytes) }), make("span", { text: ` of ${mib(card.memory_mib)} used` })),
        memory)),
    make("p", { className: "sums" }, ...sums.map(([name, text]) => make("span", { text: `${name} ` }, make("b", { text })))),
  );
  made.setAttribute("aria-label", `GPU ${card.index}`);
  if (!card.shares.length) {
    made.append(make("p", { className: "quiet", text: "No container holds it." }));
    return made;
  }
  const heads = ["Container", "Charged", "Memory", "State"].map((text) => make("th", { scope: "col", role: "columnheader", text }));
  // On a telephone it is laid out as no table, and stays one to screen readers.
  made.append(make("table", { role: "table" }, make("thead", {}, make("tr", { role: "row" }, ...heads)),
    make("tbody", {}, ...card.shares.map((each) => row(each, alone, containers[each.id])))));
  return made;
}

function busy(lanes, index) {
  const parts = lanes.filter((lane) => lane.card === index).flatMap(({ kinds }) => [kinds.run, kinds.drain]).filter(Boolean);
  return parts.length ? parts[0].map((_, i) => Math.min(100, parts.reduce((sum, each) => sum + each[i], 0))) : [];
}

function timeline({ lanes, seconds }) {
  say(at("seconds"), String(seconds));
  const shown = lanes.map((lane, i) => ({ ...lane, first: lane.card !== lanes[i - 1]?.card }));
  fill(at("timeline"), [...shown, null], (lane) => (lane ? `${lane.card} ${lane.label}` : "axis"), (lane) => {
    if (!lane) {
      const steps = [`${seconds} s ago`, `${seconds / 2} s`, "now"].map((text) => make("span", { text }));
      return make("div", { className: "axis" }, ...(lanes.length ? steps : [make("span", { text: "No container had one." })]));
    }
    const sums = Object.entries(lane.kinds)
      .map(([name, parts]) => `${name} ${Math.round(parts.reduce((sum, each) => sum + each, 0) / parts.length)} %`);
    const title = `${lane.label} on GPU ${lane.card}: ${sums.join(", ") || "no work seen"}`;
    const line = make("div", { className: `lane ${lane.class}` },
      make("span", { text: lane.label, title }), chart(lane.kinds, "", title));
    return lane.first ? make("div", {}, make("h3", { text: `GPU ${lane.card}` }), line) : make("div", {}, line);
  });
}

function events() {
  const shown = last.events.filter((event) => !kind || event.kind === kind).reverse();
  fill(at("events"), shown.length ? shown : [{ number: "none" }], (event) => event.number, (event) =>
    (event.time ? eventLine(event) : make("li", {}, make("p", { className: "quiet", text: "Nothing yet." }))));
}

function health(checks) {
  const worst = STATES.find((state) => checks.some((check) => check.state === state)) || "ok";
  say(at("state"), worst === "ok" ? "all well" : worst);
  at("state").className = `state ${worst}`;
  fill(at("health"), checks.map((check, i) => ({ ...check, i })), (check) => check.i, (check) => make("li", {},
    make("span", { className: `chip ${check.state}`, text: check.state }), make("span", { text: check.name }),
    make("span", { text: check.text })));
}

function draw(found) {
  say(at("node"), found.node);
  document.title = `${found.node} – mgpu`;
  health(found.health);
  const away = !found.cards;
  at("away").hidden = !away;
  if (away) {
    say(at("away"), found.health.find((check) => check.state === "failed")?.text || "mgpud does not answer");
    return;
  }
  last = found;
  const byGrant = Object.fromEntries(found.containers.map((each) => [each.id, each]));
  const count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
  say(at("counts"), `${count(found.containers.length, "container")} on ${count(found.cards.length, "GPU")}`);
  for (const { shares } of found.cards) shares.sort((a, b) => order(byGrant[a.id], byGrant[b.id]));
  const cards = found.cards.map((card) => ({
    card, busy: busy(found.timeline.lanes, card.index),
    containers: Object.fromEntries(card.shares.map((each) => [each.id,
      (({ label, container_id, says }) => ({ label, container_id, says }))(byGrant[each.id])])),
  }));
  fill(at("gpus"), cards, ({ card }) => card.uuid, gpu);
  timeline(found.timeline);
  events();
  story.draw(found);
}

document.addEventListener("click", ({ target }) => {
  const opened = target.closest("[data-container]"), chosen = target.closest("[data-kind]");
  if (opened) story.open(opened, last, get);
  if (!chosen) return;
  kind = chosen.dataset.kind;
  for (const each of chosen.parentNode.children) each.setAttribute("aria-pressed", String(each === chosen));
  if (last) events();
});
every(1000, draw);
