// Before textual-serve's script: where the terminal is, and what that script may not do. kasmon opens links itself, after
// a look at them; so nothing that stands in the terminal opens a window.
"use strict";

window.open = () => null;

document.addEventListener("DOMContentLoaded", () => {
  const socket = new URL("ws", location.href);
  socket.protocol = "ws:";
  document.getElementById("terminal").dataset.sessionWebsocketUrl = socket.href;
  // Keys go to the terminal from its first picture on; no click is needed.
  new MutationObserver((_, first) => {
    if (document.body.classList.contains("-first-byte")) {
      first.disconnect();
      document.querySelector(".xterm-helper-textarea").focus();
    }
  }).observe(document.body, {attributes: true, attributeFilter: ["class"]});
  document.getElementById("again").addEventListener("click", () => location.reload());
  document.getElementById("logout").addEventListener("click", async () => {
    await fetch("logout", {method: "POST"});
    location.reload();
  });
});
