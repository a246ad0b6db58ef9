// The line of "try a limit": its handle is a slider, and what it says comes from the table of the curve.
"use strict";

(() => {
  const shown = (n) => n.toLocaleString("en");
  const value = (cell) => Number(cell.textContent.replaceAll(",", ""));
  const percent = (part) => `${Number((100 * part).toPrecision(3))}%`;

  function bind(place) {
    const slider = place.querySelector("input[type=range]"), svg = place.querySelector(".histogram"), line = svg?.querySelector(".line");
    if (!slider || !line || slider.dataset.bound) return;
    slider.dataset.bound = "true";
    const curve = [...place.querySelectorAll("#curve tbody tr")].map((r) => ({ rate: value(r.cells[0]), keys: value(r.cells[1]), calls: value(r.cells[2]) }));
    const most = Number(slider.dataset.most), calls = Math.max(1, Number(place.dataset.calls));
    const say = (name, text) => { for (const el of place.querySelectorAll(`[data-try="${name}"]`)) el.textContent = text; };

    function move() {
      const wanted = most ** (slider.value / 1000);
      const step = curve.reduce((best, s) => (Math.abs(Math.log(s.rate / wanted)) < Math.abs(Math.log(best.rate / wanted)) ? s : best));
      line.setAttribute("d", `M${slider.value} 0V${svg.viewBox.baseVal.height}`);
      for (const bar of svg.querySelectorAll("rect")) {
        const caught = Number(bar.dataset.from) >= step.rate && Number(bar.dataset.below) > step.rate + 1;
        bar.setAttribute("class", caught ? "would" : "allowed");
      }
      say("rate", shown(step.rate));
      say("yaml", step.rate);
      say("keys", shown(step.keys));
      say("share", percent(step.calls / calls));
      slider.setAttribute("aria-valuetext", `${shown(step.rate)} a minute`);
      place.querySelector("#rate").value = `${step.rate}/min`;
    }
    slider.addEventListener("input", move);
    slider.addEventListener("change", () => {
      const address = new URL(location.href);
      address.searchParams.set("rate", place.querySelector("#rate").value);
      history.replaceState(null, "", address);
    });

    const drag = (e) => {
      const box = svg.getBoundingClientRect();
      slider.value = Math.round(1000 * Math.min(1, Math.max(0, (e.clientX - box.left) / box.width)));
      slider.dispatchEvent(new Event("input"));
    };
    svg.addEventListener("pointerdown", (e) => { svg.setPointerCapture(e.pointerId); drag(e); });
    svg.addEventListener("pointermove", (e) => { if (svg.hasPointerCapture(e.pointerId)) drag(e); });
    svg.addEventListener("pointerup", () => { slider.dispatchEvent(new Event("change")); slider.focus(); });
  }

  document.addEventListener("ready", (e) => {
    const place = e.target.querySelector("#try");
    if (place) bind(place);
    for (const button of e.target.querySelectorAll("[data-copy]")) button.hidden = !navigator.clipboard;
  });
  document.addEventListener("click", async (e) => {
    const button = e.target.closest("[data-copy]");
    if (!button) return;
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  });
})();
