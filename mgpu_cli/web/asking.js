// Asks `mgpu web`, with the reader's token.
import { at, say } from "./draw.js";

// In the address it is after the #, which no server is told; it stays in this tab.
function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!given) return;
  sessionStorage.setItem("token", given);
  history.replaceState(null, "", location.pathname);
}

export async function get(path) {
  const token = sessionStorage.getItem("token");
  const reply = await fetch(path, token ? { headers: { Authorization: `Bearer ${token}` } } : {});
  if (reply.status === 401 && !at("ask").open) at("ask").showModal();
  if (!reply.ok) throw new Error((await reply.text()).trim());
  return reply.json();
}

export async function every(milliseconds, draw) {
  try {
    if (!document.hidden) draw(await get("now"));
  } catch (error) {
    at("away").hidden = at("ask").open;
    say(at("away"), `mgpu web does not answer: ${error.message}`);
  }
  setTimeout(every, milliseconds, milliseconds, draw);
}

document.body.insertAdjacentHTML("beforeend", `
<dialog id="ask" aria-labelledby="ask-title">
  <form method="dialog">
    <h2 id="ask-title"><label for="token">Token</label></h2>
    <p>This is shown to those who have the token.</p>
    <input id="token" type="password" autocomplete="off" required>
    <button>Open</button>
  </form>
</dialog>`);
at("ask").addEventListener("close", () => sessionStorage.setItem("token", at("token").value));
takeToken();
addEventListener("hashchange", takeToken);
