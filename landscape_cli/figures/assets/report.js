"use strict";
(() => {
  const CONFIG = {
    responsive: true,
    displaylogo: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  };
  const PRINT_WIDTH = 660;
  const panels = [...document.querySelectorAll("figure.panel")];

  const draw = (panel, index) => {
    const spec = JSON.parse(panel.querySelectorAll('script[type="application/json"]')[index].text);
    const target = panel.querySelector(".plot");
    return Plotly.react(target, spec.data, spec.layout, CONFIG);
  };

  for (const panel of panels) {
    const select = panel.querySelector("select");
    if (!select) continue;
    const named = document.createElement("span");
    const name = () => { named.textContent = select.selectedOptions[0].textContent; };
    named.className = "chosen";
    select.after(named);
    select.addEventListener("change", () => { name(); draw(panel, select.selectedIndex); });
    select.selectedIndex = 0;
    name();
  }

  const drawAll = async () => {
    for (const panel of panels) {
      try {
        await draw(panel, 0);
      } catch (error) {
        console.error(error);
        panel.querySelector(".plot").textContent = `This figure could not be drawn: ${error.message}`;
      }
      await new Promise((resolve) => setTimeout(resolve, 0));
    }
    document.documentElement.dataset.drawn = "true";
  };

  const resize = (width) => {
    for (const target of document.querySelectorAll(".plot")) {
      if (target.layout) Plotly.relayout(target, width ? { width } : { autosize: true, width: null });
    }
  };
  window.addEventListener("beforeprint", () => resize(PRINT_WIDTH));
  window.addEventListener("afterprint", () => resize(0));
  drawAll();
})();
