// The cards of several nodes, and who has them, every two seconds.
import { every } from "./asking.js";
import { at, bytes, fill, make, say } from "./draw.js";

function chip(text, className) {
  return make("span", { className: `chip ${className}`, text });
}

function row(each) {
  const use = make("span", { className: "use" }, make("span"));
  use.firstChild.style.width = `${Math.min(100, (100 * each.used) / (each.limit || 1))}%`;
  const share = each.share === null ? "–" : `${(100 * each.share).toFixed(0)} %`;
  return make("tr", { className: each.class, role: "row" },
    make("th", { scope: "row", role: "rowheader", className: "name" }, make("span", { text: each.label }),
      make("small", { text: each.class })),
    make("td", { role: "cell", className: "number", text: share }),
    make("td", { role: "cell", className: "number", text: `${bytes(each.used)} of ${bytes(each.limit)}` }, use),
    make("td", { role: "cell" }, each.evicted ? chip(`evicted ${bytes(each.evicted)}`, "held") : ""));
}

function gpu(card) {
  const chips = make("div", { className: "chips" }, chip(card.policy || "free", ""));
  for (const what of ["lost", "drained"]) if (card[what]) chips.append(chip(what, what === "lost" ? "failed" : "attention"));
  const memory = make("div", { className: "memory" });
  for (const each of card.containers) {
    const part = make("span", { className: each.class, title: `${each.label}: ${bytes(each.used)}` });
    part.style.width = `${(100 * each.used) / (card.bytes || 1)}%`;
    memory.append(part);
  }
  const sums = [["granted", card.granted_bytes], ["lent", card.reclaimable_bytes], ["evicted", card.evicted_bytes]];
  const made = make("article", { className: "gpu" },
    make("header", {}, make("h3", { text: `GPU ${card.index} ` }, make("small", { text: card.name })), chips),
    make("div", { className: "meter" },
      make("p", {}, make("b", { text: bytes(card.used_bytes) }), make("span", { text: ` of ${bytes(card.bytes)} used` })),
      memory),
    make("p", { className: "sums" }, ...sums.map(([name, count]) =>
      make("span", { text: `${name} ` }, make("b", { text: bytes(count) })))));
  if (!card.containers.length) {
    made.append(make("p", { className: "quiet", text: "No container holds it." }));
    return made;
  }
  const heads = ["Container", "Charged", "Memory", "State"].map((text) =>
    make("th", { scope: "col", role: "columnheader", text }));
  made.append(make("table", { role: "table" }, make("thead", {}, make("tr", { role: "row" }, ...heads)),
    make("tbody", { role: "rowgroup" }, ...card.containers.map(row))));
  return made;
}

function counted(name, counts) {
  const parts = Object.entries(counts).map(([what, count]) => `${what} ${count}`);
  return make("span", { text: `${name} ` }, make("b", { text: parts.join(", ") || "none" }));
}

function state(node) {
  return node.away ? "failed" : node.missing.length || node.cards.some((card) => card.lost) ? "attention" : "ok";
}

function one(node) {
  const word = { failed: "away", attention: "needs a look", ok: "ok" }[state(node)];
  const head = make("h2", { text: `${node.node} ` }, chip(word, state(node)));
  const made = make("section", { className: "node" }, head);
  made.setAttribute("aria-label", node.node);
  if (node.away) {
    made.append(make("p", { className: "quiet", text: node.away }));
    return made;
  }
  made.append(make("p", { className: "sums" }, make("span", { text: `mgpu ${node.build}, ${node.driver}` }),
    counted("refused", node.refused), counted("moved", node.moves),
    ...(node.missing.length ? [make("span", { text: `starts need: ${node.missing.join(", ")}` })] : [])),
    make("div", { className: "cards" }, ...node.cards.map(gpu)));
  return made;
}

function draw({ nodes }) {
  const there = nodes.filter((node) => !node.away), cards = there.flatMap((node) => node.cards);
  const held = new Set(cards.flatMap((card) => card.containers.map((each) => each.id)));
  const worst = ["failed", "attention", "ok"].find((each) => nodes.some((node) => state(node) === each)) || "ok";
  const odd = nodes.filter((node) => state(node) !== "ok").length;
  say(at("state"), odd ? `look at ${odd} of ${nodes.length} nodes` : "all well");
  at("state").className = `state ${worst}`;
  say(at("counts"), `${held.size} containers on ${cards.length} GPUs of ${there.length} of ${nodes.length} nodes`);
  at("away").hidden = true;
  fill(at("nodes"), nodes, (node) => node.node, one);
}

every(2000, draw);
