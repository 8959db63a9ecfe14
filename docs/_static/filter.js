// A page with an input of class "filter": of its sections and rows of tables,
// only those that hold all words of the field are shown.
document.addEventListener("DOMContentLoaded", () => {
  const field = document.querySelector("input.filter");
  if (!field) return;
  const page = field.closest("article");
  // A row holds the words of its table's heading, too.
  const entries = [...page.querySelectorAll("tbody tr, section section")]
    .filter((entry) => entry.matches("tr") || !entry.querySelector("tr"))
    .map((entry) => {
      const part = entry.closest("section section, details");
      const heading = part?.querySelector("h2, summary");
      const text = `${heading?.textContent ?? ""} ${entry.textContent}`;
      return { entry, text: text.toLowerCase() };
    });
  const tables = [
    ...page.querySelectorAll("section section, details"),
  ].filter((part) => part.querySelector("tr"));
  const count = document.createElement("span");
  count.setAttribute("role", "status");
  field.after(count);

  function narrow() {
    const words = field.value.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const { entry, text } of entries) {
      entry.hidden = !words.every((word) => text.includes(word));
      shown += !entry.hidden;
    }
    for (const part of tables) {
      part.hidden = !part.querySelector("tbody tr:not([hidden])");
      part.open = field.value.trim() !== ""; // Of "details".
    }
    count.textContent = `${shown} of ${entries.length}`;
  }

  field.hidden = false;
  field.addEventListener("input", narrow);
  // A link to an entry shows it.
  addEventListener("hashchange", () => {
    field.value = "";
    narrow();
  });
  narrow();
});
