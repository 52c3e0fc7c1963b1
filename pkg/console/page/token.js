// With a token the page can change something; without one it only shows.
import { act } from "./act.js";
import { forgetToken, hasToken, useToken } from "./api.js";
import { byId, write } from "./dom.js";

// tokenButton has the button ask for a token, or forget the one that there is. It tells when either was done.
export function tokenButton(changed) {
  const dialog = byId("token-dialog");
  const input = byId("token-input");
  const said = byId("token-said");
  const show = (by) => {
    write(byId("token"), by === "" ? "Read-only" : "Forget token");
    write(byId("by"), by === "" ? "" : `as ${by}`);
    changed();
  };
  byId("token").addEventListener("click", () => {
    if (hasToken()) {
      forgetToken();
      show("");
    } else {
      dialog.showModal();
    }
  });
  byId("token-form").addEventListener("submit", (e) => {
    e.preventDefault();
    act(byId("token-use"), said, async () => {
      input.select(); // a wrong one is typed over
      show(await useToken(input.value.trim()));
      dialog.close();
      return "";
    });
  });
  byId("token-cancel").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => {
    input.value = "";
    write(said, "");
  });
}
