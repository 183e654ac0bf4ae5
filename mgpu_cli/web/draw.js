// What the page is drawn with. All text is set as text: names come from pods.
const MIB = 1 << 20, SVG = "http://www.w3.org/2000/svg";

export const at = (id) => document.getElementById(id);

export function make(tag, { text, ...members } = {}, ...children) {
  const made = Object.assign(document.createElement(tag), members);
  if (text !== undefined) made.textContent = text;
  made.append(...children);
  return made;
}

export function bytes(count) {
  const mib = Math.ceil(count / MIB);
  return mib < 1024 ? `${mib} MiB` : `${(mib / 1024).toFixed(1)} GiB`;
}

export const mib = (count) => bytes(count * MIB);

export function say(element, text) {
  // Screen readers say again what is written again.
  if (element.textContent !== text) element.textContent = text;
}

// Children that stay keep their element, and with it the keyboard's place in it.
export function fill(parent, items, key, draw) {
  const had = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const drawn = items.map((item) => {
    const name = String(key(item)), state = JSON.stringify(item), old = had.get(name);
    if (old?.drawnOf === state) return old;
    const made = Object.assign(draw(item), { drawnOf: state });
    made.dataset.key = name;
    if (old) replace(old, made);
    return made;
  });
  const kept = new Set(drawn);
  for (const child of [...parent.children]) if (!kept.has(child)) child.remove();
  drawn.forEach((child, i) => {
    if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] || null);
  });
}

function replace(old, made) {
  const places = (within) => [within, ...within.querySelectorAll("button, [tabindex]")];
  const active = document.activeElement, place = places(old).indexOf(active);
  old.replaceWith(made);
  if (place < 0) return;
  const again = places(made).find((each) => each.dataset.container === active.dataset.container);
  (again || places(made)[place])?.focus({ preventScroll: true });
}

export function opener(label, container) {
  const made = make("button", { type: "button", className: "open", text: label });
  made.dataset.container = container;
  return made;
}

// kinds: for each, what part of each column it fills, in percent; they are stacked.
export function chart(kinds, className, title) {
  const made = document.createElementNS(SVG, "svg");
  const columns = Math.max(0, ...Object.values(kinds).map((parts) => parts.length));
  made.setAttribute("viewBox", `0 0 ${columns || 1} 100`);
  made.setAttribute("preserveAspectRatio", "none");
  made.setAttribute("class", className);
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", title);
  const below = new Array(columns).fill(0);
  for (const [kind, parts] of Object.entries(kinds)) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("class", kind);
    path.setAttribute("d", area(parts, below));
    made.append(path);
  }
  return made;
}

function area(parts, below) {
  let path = "";
  for (let start = 0, end; start < parts.length; start = end) {
    for (end = start + 1; parts[end] === parts[start] && below[end] === below[start]; end++);
    const height = Math.min(parts[start], 100 - below[start]);
    if (height > 0) path += `M${start} ${100 - below[start]}H${end}V${100 - below[start] - height}H${start}Z`;
  }
  for (let i = 0; i < parts.length; i++) below[i] = Math.min(100, below[i] + parts[i]);
  return path;
}

export function eventLine(event) {
  const line = make("li", { className: /Refused|Ended|Killed|Lost|Failed/.test(event.kind) ? "bad" : "" });
  line.append(
    make("time", { dateTime: event.time, text: new Date(event.time).toLocaleTimeString([], { hourCycle: "h23" }) }),
    make("div", {},
      make("p", {}, make("span", { className: "kind", text: event.kind }),
        ...(event.container_id ? [opener(event.label, event.container_id)] : [])),
      make("p", { text: event.text })),
  );
  return line;
}
