// What a button does.
import { Failure } from "./api.js";
import { write } from "./dom.js";

// act does something, not twice at once, and writes what came of it: the words that it returns, or why it failed. The button
// keeps the focus.
export async function act(button, said, does) {
  if (button.getAttribute("aria-disabled") === "true") {
    return;
  }
  button.setAttribute("aria-disabled", "true");
  try {
    const words = await does();
    said.classList.remove("problem");
    write(said, words);
  } catch (failure) {
    if (!(failure instanceof Failure)) {
      throw failure;
    }
    said.classList.add("problem");
    write(said, failure.message);
  } finally {
    button.removeAttribute("aria-disabled");
  }
}
