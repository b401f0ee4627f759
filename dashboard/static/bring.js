// Says that files are being read, which takes some seconds.
import { all, find } from "./lib.js";

for (const form of all("form.waits")) form.addEventListener("submit", () => { find("#waiting").hidden = false; });
