// The report: the same charts as the live page, drawn once from the document that lies in the file.
import { Charts, drawHosts, drawTraining } from "../live/page/charts.js";
import { Lanes } from "../live/page/timeline.js";

const told = JSON.parse(document.getElementById("document").textContent);
const drawn = {
  training: new Charts(document.querySelector("#charts .charts")),
  hosts: new Charts(document.querySelector("#hosts .charts")),
  lanes: new Lanes(document.querySelector("#timeline .lanes")),
};

function drawReport() {
  drawTraining(drawn.training, told);
  drawHosts(drawn.hosts, told);
  document.getElementById("timeline").hidden = !told.timeline.length;
  drawn.lanes.show(told);
  for (const name of ["charts", "hosts"]) {
    const section = document.getElementById(name);
    section.hidden = !section.querySelector("figure");
  }
}

for (const name of ["charts", "hosts", "timeline"]) document.getElementById(name).hidden = false; // a hidden box has no width
drawReport();
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  drawn.training.restyle();
  drawn.hosts.restyle();
  drawn.lanes.forget();
  drawReport();
});
document.documentElement.dataset.drawn = "yes";
