// Curves of several runs in one plot.
import { all, find, Plot } from "./lib.js";

const runs = all(".compared").map((row) => [row.dataset.run, find("a", row).textContent]);
if (runs.length) {
  const plots = Object.fromEntries(["loss", "accuracy"].map((name) => [name, new Plot(find(`#${name}`), runs.map(([, title]) => title))]));
  runs.forEach(async ([run], index) => {
    const curves = await (await fetch(`/runs/${run}/curves`)).json();
    for (const [name, curve] of Object.entries(curves)) plots[name].set(index, curve);
  });
}
