// Runs before the first paint, so that the page does not flash in the other theme.
// "auto" is what the system prefers.
(() => {
  const chosen = localStorage.getItem('theme');
  if (chosen === 'light' || chosen === 'dark') {
    document.documentElement.dataset.theme = chosen;
  }
})();
