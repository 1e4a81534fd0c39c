// Colours of chances, from orange (low) to blue (high). The two are distinguishable with all
// kinds of colour blindness; the middle is pale on a light page and dim on a dark one.

const scales = {
  light: [[0, [176, 62, 10]], [0.35, [236, 145, 60]], [0.65, [240, 226, 200]], [0.85, [128, 178, 222]], [1, [30, 96, 168]]],
  dark: [[0, [240, 120, 50]], [0.35, [190, 98, 44]], [0.65, [84, 78, 74]], [0.85, [58, 110, 164]], [1, [104, 172, 240]]],
};

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
}

// chanceColour is for a chance from 0 to 1.
export function chanceColour(chance, dark = isDark()) {
  const scale = scales[dark ? 'dark' : 'light'];
  const i = Math.max(1, scale.findIndex(([x]) => x >= chance));
  const [[x0, a], [x1, b]] = [scale[i - 1], scale[i]];
  const t = Math.max(0, Math.min(1, (chance - x0) / (x1 - x0)));
  return `rgb(${a.map((v, k) => Math.round(v + (b[k] - v) * t)).join(' ')})`;
}

// token is a colour of the style sheet.
export function token(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// series are colours for lines, distinguishable with colour blindness (those of Okabe and
// Ito, made lighter or darker to fit the theme).
export function series(i) {
  return token(`series-${(i % 8) + 1}`);
}
