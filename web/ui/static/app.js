// What pages do beside what the server made: times become local, forms open in a dialog, live parts are filled. Without
// this everything can be read and done as well.
"use strict";

(() => {
  // Times: the element says when in UTC, also on hover.
  const local = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" });
  const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "narrow" });
  // How far the clock of this machine is behind the control plane's: what has just happened there is not to come.
  const behind = new Date(document.documentElement.dataset.now) - Date.now();

  function ago(at) {
    const seconds = Math.round((at - Date.now() - behind) / 1000);
    const [unit, of] = units.find(([, of]) => Math.abs(seconds) >= of) || units[3];
    return relative.format(Math.round(seconds / of), unit);
  }

  function localise(root) {
    for (const el of root.querySelectorAll("time[datetime]")) {
      const at = new Date(el.dateTime);
      if (isNaN(at)) continue;
      const text = el.hasAttribute("data-ago") ? ago(at) : local.format(at);
      if (el.textContent !== text) el.textContent = text;
    }
  }
  setInterval(() => localise(document), 5000);

  // Live parts: an element with data-live and the id of the part. The feed says every five seconds that it is there, so that
  // its silence tells of a connection that is dead.
  const silent = "The control plane does not answer: what is shown here may be old.";
  let source = null, heard = 0;
  setInterval(() => {
    if (!source || Date.now() - heard < 15000) return;
    trouble(silent);
    leave("lost");
    follow();
  }, 1000);
  function follow() {
    const parts = document.querySelectorAll("[data-live]");
    if (source || parts.length === 0 || document.hidden) return;
    source = new EventSource(location.pathname + location.search);
    heard = Date.now();
    const on = (name, what) => source.addEventListener(name, (e) => { heard = Date.now(); what(e.data); });
    for (const el of parts) on(el.id, (html) => fill(el, html));
    on("here", () => {});
    on("trouble", trouble);
    on("ended", () => { source.close(); location.reload(); });
    on("open", () => { trouble(""); document.body.dataset.feed = "open"; });
    source.onerror = () => {
      if (document.getElementById("trouble").hidden) trouble(silent);
      if (source.readyState === EventSource.CLOSED) lost();
    };
  }

  // lost asks again where the browser does not: what answered was no stream, but a proxy before a control plane that starts,
  // or a page that says that the session has ended.
  function lost() {
    leave("lost");
    setTimeout(async () => {
      const answer = await fetch(location, { method: "HEAD" }).catch(() => null);
      if (answer?.status === 401) location.reload();
      else follow();
    }, 5000);
  }

  // A click is on what the pointer was pressed on: while it is down, nothing is put in its place.
  const held = new Map();
  let pressed = false;
  document.addEventListener("pointerdown", () => { pressed = true; }, true);
  for (const end of ["pointerup", "pointercancel", "dragend", "contextmenu"]) {
    document.addEventListener(end, () => setTimeout(() => {
      pressed = false;
      for (const [el, html] of held) fill(el, html);
      held.clear();
    }), true);
  }

  // fill keeps what a person opened, how far they scrolled, and where they are.
  function fill(el, html) {
    if (pressed) {
      held.set(el, html);
      return;
    }
    const open = new Set([...el.querySelectorAll("details[open][id]")].map((d) => d.id));
    const scrolled = [...el.querySelectorAll(".scroll")].map((s) => [s.scrollLeft, s.scrollTop, s === document.activeElement]);
    const focused = el.contains(document.activeElement) && named(document.activeElement);
    el.innerHTML = html;
    for (const d of el.querySelectorAll("details[id]")) if (open.has(d.id)) d.open = true;
    [...el.querySelectorAll(".scroll")].slice(0, scrolled.length).forEach((s, i) => {
      const [left, top, had] = scrolled[i];
      s.scrollTo(left, top);
      if (had) s.focus({ preventScroll: true });
    });
    if (focused) el.querySelector(focused)?.focus({ preventScroll: true });
    ready(el);
    el.dispatchEvent(new CustomEvent("filled", { bubbles: true }));
  }

  // named selects what has the focus once it is made anew; "" where it cannot be told.
  function named(el) {
    if (el.matches("summary")) return `[id="${CSS.escape(el.parentElement.id)}"] > summary`;
    return el.matches("a[href]") ? `a[href="${CSS.escape(el.getAttribute("href"))}"]` : "";
  }

  function trouble(text) {
    const el = document.getElementById("trouble");
    el.textContent = text;
    el.hidden = !text;
  }

  // What nobody sees is not followed: a browser opens only six connections to a host, of which each feed is one.
  function leave(state) {
    if (!source) return;
    source.close();
    source = null;
    document.body.dataset.feed = state;
  }
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) leave("paused");
    follow();
  });

  // Forms of actions open in a dialog; what is wrong with one is said there.
  const dialog = document.getElementById("dialog");
  async function show(response, sent) {
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const confirm = page.getElementById("confirm") || (sent && page.getElementById("failed"));
    if (!confirm) { location.assign(response.url); return; } // to sign in, or an error
    const message = confirm.querySelector("#message");
    if (dialog.open && message && !message.value) message.value = dialog.querySelector("#message")?.value || "";
    dialog.replaceChildren(document.adoptNode(confirm));
    ready(dialog);
    if (!dialog.open) dialog.showModal();
    dialog.querySelector("h1")?.focus();
  }

  // open shows the form of an address; where that cannot be had, the browser says why.
  async function open(address) {
    try {
      await show(await fetch(address));
    } catch {
      location.assign(address);
    }
  }

  document.addEventListener("click", (e) => {
    const link = e.target.closest("a[data-dialog]");
    if (link && !e.ctrlKey && !e.metaKey && !e.shiftKey) {
      e.preventDefault();
      open(link.href);
      return;
    }
    if (dialog.open && (e.target === dialog || e.target.closest("[data-close]"))) {
      e.preventDefault();
      dialog.close();
    }
  });

  dialog.addEventListener("submit", async (e) => {
    e.preventDefault();
    const form = e.target;
    if (form.getAttribute("method") === "get") {
      open(form.getAttribute("action") + "?" + new URLSearchParams(new FormData(form)));
      return;
    }
    const button = form.querySelector("[type=submit]");
    if (button.ariaBusy === "true") return;
    button.ariaBusy = "true";
    try {
      const response = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)), redirect: "manual" });
      if (response.type === "opaqueredirect") { location.reload(); return; }
      await show(response, true);
    } catch {
      button.ariaBusy = "false";
      const note = form.querySelector(".note") ?? form.insertBefore(document.createElement("p"), form.firstChild);
      note.className = "note bad";
      note.role = "alert";
      note.textContent = "The control plane did not answer: whether this was done is not known. Look at the audit trail before you do it again.";
    }
  });

  // The slider of a rollout opens the form that promotes to where it was put. It follows what others do.
  function slide(slider) {
    const stops = [...slider.list.options];
    const say = () => { slider.closest(".slide").querySelector("output").textContent = stops[slider.value].label; };
    slider.closest(".slide").hidden = false;
    slider.addEventListener("input", say);
    slider.addEventListener("change", () => open(stops[slider.value].dataset.to));
    const follow = () => {
      const at = stops.findIndex((s) => s.dataset.share === document.querySelector("[data-share].rolling")?.dataset.share);
      if (at >= 0 && !dialog.open) slider.value = at;
      say();
    };
    document.addEventListener("filled", follow);
    dialog.addEventListener("close", follow);
    say();
  }

  function ready(root) {
    localise(root);
    for (const slider of root.querySelectorAll("#slider")) slide(slider);
    root.dispatchEvent(new CustomEvent("ready", { bubbles: true, detail: root }));
  }
  document.addEventListener("DOMContentLoaded", () => { document.body.classList.add("scripted"); ready(document.body); follow(); });
  // What was asked for is not in an answer that says why it failed.
  document.addEventListener("htmx:beforeSwap", (e) => {
    const failed = new DOMParser().parseFromString(e.detail.xhr.responseText, "text/html").getElementById("failed");
    trouble(failed && e.detail.target.id !== "main" ? failed.querySelector("h1 + p").textContent : "");
    if (!document.getElementById("trouble").hidden) e.detail.shouldSwap = false;
  });
  document.addEventListener("htmx:sendError", () => trouble("The control plane does not answer."));
  // A filter has put another page in the place of this one.
  document.addEventListener("htmx:afterSettle", () => {
    localise(document);
    leave("moved");
    follow();
  });
})();
