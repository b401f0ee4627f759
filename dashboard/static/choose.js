// Checks the form while it is filled in: what is wrong stands beside its field.
import { all, find } from "./lib.js";

const form = find("#choices"), path = `/runs/${form.dataset.run}`;
let latest = 0, tried = "";

function show(wrong) {
  for (const output of all("[data-wrong]", form)) {
    const name = output.dataset.wrong;
    output.textContent = wrong[name] ?? "";
    const field = name && form.elements[name];
    if (field?.setAttribute) field.setAttribute("aria-invalid", name in wrong);
  }
  const folded = find("details", form);
  if (all("details [data-wrong]", form).some((output) => output.textContent)) folded.open = true;
}

async function ask(action) {
  const answer = await fetch(`${path}/${action}`, { method: "POST", body: new URLSearchParams(new FormData(form)) });
  return answer.ok ? answer.json() : { wrong: { "": await answer.text() }, command: "" };
}

async function check() {
  const number = ++latest;
  const { wrong, command } = await ask("check");
  if (number !== latest) return;
  show(wrong);
  find("#command").textContent = command;
  if (!command || command === tried || !command.includes("--preset")) {
    if (!command.includes("--preset")) find("#fits").textContent = "";
    return;
  }
  tried = command;
  find("#fits").textContent = "Trying the machine …";
  const found = await ask("try");
  if (number !== latest) return;
  show(found.wrong);
  find("#fits").textContent = found.machine ? `${found.machine} takes this network.` : "";
}

// A machine sets the widths.
function widths() {
  const machine = form.elements.preset.value || form.elements.preset.disabled;
  for (const name of ["weights_bits", "input_bits"]) form.elements[name].disabled = Boolean(machine) && machine !== "fit";
}

let timer;
form.addEventListener("input", widths);
form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(check, 250); });
widths();
check();
