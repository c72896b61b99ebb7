"use strict";
(() => {
  const live = document.getElementById("live");
  if (!live) return;
  const status = document.getElementById("live-status");
  let ahead = Number(live.dataset.now) - Date.now() / 1000;
  let isTouched = false;
  let waiting = [];

  function age(seconds) {
    const whole = Math.max(0, Math.round(seconds));
    const minutes = Math.floor(whole / 60);
    if (minutes < 1) return `${whole} s`;
    return minutes < 60 ? `${minutes} min ${whole % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  }

  function showAges() {
    const now = Date.now() / 1000 + ahead;
    for (const time of live.getElementsByTagName("time")) time.textContent = age(now - Number(time.dataset.at));
  }

  function apply(change) {
    ahead = change.now - Date.now() / 1000;
    const focused = document.activeElement && document.activeElement.id;
    for (const [id, html] of change.blocks) {
      const made = document.createElement("template");
      made.innerHTML = html;
      const old = document.getElementById(id);
      if (old) old.replaceWith(made.content);
      else live.append(made.content);
    }
    const wanted = new Set(change.order);
    for (const child of [...live.children]) if (!wanted.has(child.id)) child.remove();
    change.order.forEach((id, at) => {
      if (live.children[at].id !== id) live.insertBefore(document.getElementById(id), live.children[at]);
    });
    if (focused && document.activeElement === document.body) {
      const again = document.getElementById(focused);
      if (again) again.focus();
    }
    showAges();
  }

  function release() {
    isTouched = false;
    waiting.splice(0).forEach(apply);
  }

  // A row that moves under a finger would be another one.
  addEventListener("pointerdown", () => { isTouched = true; });
  addEventListener("pointerup", () => { setTimeout(release, 400); });
  addEventListener("pointercancel", release);

  const source = new EventSource(live.dataset.events);
  source.addEventListener("open", () => { status.textContent = "live"; });
  source.addEventListener("error", () => { status.textContent = "not live: no connection"; });
  source.addEventListener("message", (event) => {
    const change = JSON.parse(event.data);
    if (isTouched) waiting.push(change);
    else apply(change);
  });
  source.addEventListener("end", () => {
    source.close();
    location.reload();
  });
  setInterval(showAges, 1000);
})();

(() => {
  async function post(path, fields) {
    const answer = await fetch(path, { method: "POST", body: new URLSearchParams(fields) });
    if (!answer.ok) throw new Error(`${answer.status}`);
    return answer;
  }

  function offer(id, act) {
    const form = document.getElementById(id);
    if (!form) return;
    const status = form.querySelector("p");
    form.hidden = false;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      status.textContent = "";
      try {
        await act(Object.fromEntries(new FormData(form)), status);
      } catch (error) {
        status.textContent = `It was not accepted (${error.name === "Error" ? error.message : error.name}).`;
      }
    });
  }

  if (navigator.serviceWorker && window.PushManager) offer("push", async (fields, status) => {
    if (await Notification.requestPermission() !== "granted") throw new Error("not allowed in this browser");
    await navigator.serviceWorker.register("worker.js");
    const worker = await navigator.serviceWorker.ready;
    const { key } = await (await post("push/key", fields)).json();
    const options = { userVisibleOnly: true, applicationServerKey: new Uint8Array(key) };
    const old = await worker.pushManager.getSubscription();
    if (old) await old.unsubscribe(); // one with another key could not be replaced
    const made = await worker.pushManager.subscribe(options);
    await post("push/subscribe", { ...fields, subscription: JSON.stringify(made) });
    status.textContent = "This device is notified while you are away.";
  });

  const key = window.PublicKeyCredential;
  if (!key || !key.parseCreationOptionsFromJSON || !key.parseRequestOptionsFromJSON) return;

  offer("passkey-add", async (fields, status) => {
    const options = await (await post("passkey/options", fields)).json();
    const made = await navigator.credentials.create({ publicKey: key.parseCreationOptionsFromJSON(options) });
    await post("passkey/register", { ...fields, credential: JSON.stringify(made.toJSON()) });
    status.textContent = "Added. It logs you in here.";
  });

  offer("passkey-login", async () => {
    const options = await (await post("passkey/challenge", {})).json();
    const given = await navigator.credentials.get({ publicKey: key.parseRequestOptionsFromJSON(options) });
    await post("passkey/login", { credential: JSON.stringify(given.toJSON()) });
    location.reload();
  });
})();
