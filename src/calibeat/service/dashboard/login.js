// The token goes to the service once and comes back as a cookie that no script can read.
function startLogin(again) {
  const form = byId("login-form"), field = byId("token"), problem = byId("login-problem"), button = form.querySelector("button");
  form.addEventListener("submit", async event => {
    event.preventDefault();
    button.disabled = true;
    try {
      const answer = await fetch("login", { method: "POST", body: new URLSearchParams({ token: field.value }) });
      if (answer.ok) { field.value = ""; write(problem, ""); again(); return; }
      write(problem, answer.status === 401 ? "The service does not know this token, or it was revoked." : `The service answered with status ${answer.status}.`);
      field.select();
    } catch {
      write(problem, "The service does not answer. Try again.");
    } finally {
      button.disabled = false;
    }
  });
  byId("logout").addEventListener("click", async () => {
    try { await fetch("logout", { method: "POST" }); } catch { return; }
    again();
  });
}

function showLogin() {
  showOnly("login");
  document.title = "Log in – calibeat";
  byId("logout").hidden = true;
  byId("token").focus();
}

function showOnly(id) {
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== id;
}
