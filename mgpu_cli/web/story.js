// One container: what there is of it now, what happened to it, and what mgpud logged of it.
import { at, bytes, eventLine, fill, make, mib, say } from "./draw.js";

const NS_PER_S = 1e9;
let chosen = null, asked = 0, label = "", list = null;

export function open(opener, found, get) {
  chosen = opener.dataset.container;
  list = opener.closest("#gpus, #events") || list;
  label = [...found.containers, ...found.events].find((each) => each.container_id === chosen)?.label || chosen;
  at("story-log").replaceChildren();
  draw(found);
  if (!at("story").open) at("story").showModal();
  at("story").scrollTop = 0;
  log(get, ++asked);
}

async function log(get, number) {
  if (number !== asked || !at("story").open) return;
  let lines;
  try {
    lines = await get(`log?container=${encodeURIComponent(chosen)}`);
  } catch (error) {
    lines = [{ time: new Date().toISOString(), level: "", event: "", text: error.message }];
  }
  if (number !== asked) return;
  fill(at("story-log"), lines.reverse(), (line) => JSON.stringify(line), (line) =>
    eventLine({ time: line.time, kind: line.event, text: [line.level, line.text].join("  ") }));
  setTimeout(log, 2000, get, number);
}

export function draw(found) {
  if (chosen === null) return;
  const one = found.containers.find((each) => each.container_id === chosen);
  say(at("story-title"), label);
  say(at("story-state"), one ? `${one.says}; ${one.class}, ${one.policy || "no policy"}` : "It holds no GPU now.");
  fill(at("facts"), Object.entries(one ? facts(one) : { Id: chosen }).filter(([, value]) => value)
    .flatMap(([name, value]) => [{ dt: name, key: `${name} dt` }, { dd: value, key: `${name} dd` }]),
  ({ key }) => key, ({ dt, dd }) => (dt ? make("dt", { text: dt }) : make("dd", { text: dd })));
  const own = found.events.filter((event) => event.container_id === chosen).reverse();
  fill(at("story-events"), own, (event) => event.number, eventLine);
}

function facts(one) {
  const seconds = (ns) => `${(ns / NS_PER_S).toFixed(1)} s`;
  const { sched, reclaim, parked } = one;
  return {
    Id: one.container_id,
    Created: new Date(one.created).toLocaleString(),
    Pid: one.pid && String(one.pid),
    GPUs: one.cards.map((card) => `GPU ${card.index}: ${bytes(card.used_bytes)} of ${mib(card.memory_mib)}, `
      + `at most ${bytes(card.peak_bytes)}`).join("; "),
    Share: sched && `${sched.quota_percent} % of each GPU`,
    Ran: sched && seconds(sched.run_ns),
    Suspended: sched && `${seconds(sched.suspended_ns)}, preempted ${sched.preemptions} times`,
    "Memory gives way": one.reclaimable ? reclaim?.state || "yes" : "",
    Evicted: reclaim?.evicted_bytes ? bytes(reclaim.evicted_bytes) : "",
    "Comes back": reclaim?.comes_back,
    "Not moved": reclaim?.not_moved,
    Waited: parked?.calls ? `${seconds(parked.ns)} in ${parked.calls} calls, for memory that gives way` : "",
    Killed: one.unsuspendable || (one.unaccounted_bytes ? `${bytes(one.unaccounted_bytes)} it was not charged for` : ""),
    Processes: one.processes.map((each) => `${each.pid} on GPU ${each.card}: ${bytes(each.used_bytes)}`).join("; "),
  };
}

at("story").addEventListener("close", () => {
  // What it was opened by may have been drawn anew meanwhile.
  list?.querySelector(`[data-container="${CSS.escape(chosen)}"]`)?.focus();
  chosen = null;
  asked++;
});
