// Obtainability: which machines could be launched, how certain that is, and past launches.

import { el, once, svg } from './dom.js';
import { at, count, exact, plural, some, span } from './format.js';
import { chanceColour, isDark, token } from './colour.js';

export const title = 'Obtainability';

// windows are the lengths of time that can be shown, in seconds.
const windows = [[3600, '1 h'], [6 * 3600, '6 h'], [24 * 3600, '24 h']];

// much evidence, in launches, fills the height of a cell.
const much = 4;

// outcomes of launches: the shape tells them apart where colours do not.
const outcomes = {
  '': { name: 'succeeded', shape: 'circle' },
  Stockout: { name: 'stockout', shape: 'cross' },
  Quota: { name: 'account quota', shape: 'square' },
  Network: { name: 'no free addresses', shape: 'square' },
  Throttle: { name: 'throttled', shape: 'triangle' },
  Auth: { name: 'no permission', shape: 'square' },
  Config: { name: 'bad configuration', shape: 'square' },
  Timeout: { name: 'too late', shape: 'triangle' },
  Lost: { name: 'lost', shape: 'triangle' },
};

export function mount(root, app) {
  let data = null;
  let focused = [0, 0]; // the cell that has the focus, by row and column
  const headline = el('h1');
  const range = el('div', { class: 'chips', role: 'group', 'aria-label': 'Time range' }, windows.map(([length, text]) =>
    el('button', { class: 'chip', type: 'button', 'data-window': length, onclick: () => app.set({ window: length === windows[0][0] ? '' : length }) }, text)));
  const search = el('input', {
    type: 'search', placeholder: 'Offering, zone, capacity type or machine type', 'aria-label': 'Search the offerings', autocomplete: 'off', spellcheck: 'false',
    oninput: () => app.set({ q: search.value.trim() }),
  });
  const rows = el('tbody');
  const tip = el('div', { class: 'tip', hidden: true });
  const times = el('div', { class: 'axis', 'aria-hidden': 'true' });
  const source = el('p', { class: 'small muted' });
  const attempts = el('div', { class: 'picture' });
  const sizes = el('div', { class: 'picture' });
  const troubles = el('ul', { class: 'troubles' });
  const trouble = el('section', { 'aria-labelledby': 'troubles', hidden: true }, el('h2', { id: 'troubles' }, 'Needs attention'), troubles);

  root.append(
    el('section', { class: 'lead' }, el('div', { class: 'title' }, headline, el('div', { class: 'tools' }, search, range))),
    el('section', { 'aria-labelledby': 'heat' },
      el('div', { class: 'title' }, el('h2', { id: 'heat' }, 'Chance of getting a machine'), legend()),
      el('table', { class: 'heat', role: 'grid', 'aria-labelledby': 'heat' },
        el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'Offering'), el('th', { scope: 'col', class: 'number' }, 'USD/h'),
          el('th', { scope: 'col', class: 'number' }, 'Now'), el('th', { scope: 'col', class: 'number wide' }, 'Of 8'), el('th', { scope: 'col' }, el('span', { class: 'hidden' }, 'Over time'), times),
          el('th', { scope: 'col', class: 'number wide' }, 'Machines'))),
        rows),
      source),
    trouble,
    el('div', { class: 'columns' },
      el('section', { 'aria-labelledby': 'attempts' }, el('h2', { id: 'attempts' }, 'Launches'), attempts),
      el('section', { 'aria-labelledby': 'sizes' }, el('h2', { id: 'sizes' }, 'Success by gang size'), sizes)),
    tip,
  );

  function legend() {
    const steps = [0, 0.25, 0.5, 0.75, 0.9, 1];
    return el('p', { class: 'key small muted', 'aria-hidden': 'true' },
      el('span', {}, '0 %', steps.map((c) => el('i', { class: 'swatch', 'data-chance': c, style: { background: chanceColour(c) } })), '100 %'),
      el('span', {}, el('i', { class: 'swatch thin' }), 'little evidence'), el('span', {}, el('i', { class: 'swatch thick' }), 'much'));
  }

  const offerings = () => {
    const q = (app.params.get('q') ?? '').toLowerCase();
    return data.offerings.filter((o) => !q || [o.name, o.zone, o.capacityType, o.type, o.provider].join(' ').toLowerCase().includes(q));
  };
  const timeOf = (column) => data.from + column * data.step;

  function draw() {
    const list = offerings();
    focused = [Math.min(focused[0], Math.max(0, list.length - 1)), Math.min(focused[1], data.columns - 1)];
    const likely = data.offerings.filter((o) => o.chance >= 80 && !o.backoff).length;
    headline.replaceChildren(`${count(likely)} of ${count(data.offerings.length)} offerings`, el('span', { class: 'muted' }, ' available'));
    rows.replaceChildren(...list.map(row));
    if (list.length === 0) {
      rows.append(el('tr', {}, el('td', { colspan: 6, class: 'muted' }, data.offerings.length ? 'No offering matches.' : 'There is no NodeGroup yet.')));
    }
    for (const button of range.children) {
      button.setAttribute('aria-pressed', Number(button.dataset.window) === data.window ? 'true' : 'false');
    }
    const middle = data.from + (data.to - data.from) / 2;
    times.replaceChildren(...[[0, data.from], [50, middle], [100, data.to]].map(([x, t]) => el('span', { style: { left: `${x}%` } }, x === 100 ? 'now' : at(t))));
    source.textContent = data.source;
    trouble.hidden = !data.offerings.some((o) => o.troubles?.length);
    troubles.replaceChildren(...data.offerings.flatMap((o) => (o.troubles ?? []).map((t) => el('li', {}, el('b', {}, o.name), ` ${t}`))));
    drawAttempts();
    drawSizes();
    paint();
  }

  function row(o, i) {
    const known = o.chances.filter((c) => c >= 0);
    const strip = el('canvas', {
      class: 'strip', tabindex: i === focused[0] ? 0 : -1, role: 'img', 'data-row': i,
      'aria-label': known.length ? `Chance over time, now ${o.chance} percent, lowest ${Math.min(...known)}. Left and right tell each.` : `Chance now ${o.chance} percent`,
    });
    strip.offering = o;
    return el('tr', {},
      el('th', { scope: 'row' }, el('span', { class: 'name', title: o.name }, o.name), el('span', { class: 'sub' }, [o.provider, o.capacityType, o.zone, o.type].filter(Boolean).join(' · '))),
      el('td', { class: 'number' }, o.usdPerHour),
      el('td', { class: 'number' }, el('b', {}, `${o.chance} %`), o.backoff ? el('span', { class: 'sub warn', title: o.lastFailure }, `backoff ${span((o.backoff - Date.now()) / 1000)}`) : o.lastFailure ? el('span', { class: 'sub', title: o.lastFailure }, o.lastFailure) : null),
      el('td', { class: 'number wide' }, o.chanceOfEight === undefined ? '–' : `${o.chanceOfEight} %`),
      el('td', { class: 'strip-cell' }, strip),
      el('td', { class: 'number wide' }, `${count(o.machines)}`, el('span', { class: 'sub' }, `of ${count(o.max)}`)));
  }

  // paint draws all strips: the colour is the chance, the height is the evidence for it.
  function paint() {
    const dark = isDark();
    const [line, text] = [token('line'), token('text')];
    for (const strip of rows.querySelectorAll('.strip')) {
      const o = strip.offering;
      const [w, h] = [strip.clientWidth, strip.clientHeight];
      if (w === 0) {
        continue;
      }
      strip.width = w * devicePixelRatio;
      strip.height = h * devicePixelRatio;
      const c = strip.getContext('2d');
      c.scale(devicePixelRatio, devicePixelRatio);
      const cell = w / data.columns;
      c.fillStyle = line;
      c.fillRect(0, h - 1, w, 1);
      for (let i = 0; i < data.columns; i++) {
        if (o.chances[i] < 0) {
          continue;
        }
        const share = 0.28 + 0.72 * Math.min(1, o.evidence[i] / much);
        const tall = Math.max(4, (h - 2) * share);
        c.fillStyle = chanceColour(o.chances[i] / 100, dark);
        c.fillRect(i * cell, h - 1 - tall, Math.max(1, cell - (cell > 4 ? 1 : 0)), tall);
      }
      if (document.activeElement === strip || strip.matches(':hover') && strip.column !== undefined) {
        const i = document.activeElement === strip ? focused[1] : strip.column;
        c.strokeStyle = text;
        c.lineWidth = 1.5;
        c.strokeRect(i * cell + 0.5, 1, Math.max(cell - 1, 2), h - 2);
      }
    }
    for (const swatch of root.querySelectorAll('[data-chance]')) {
      swatch.style.background = chanceColour(Number(swatch.dataset.chance), dark);
    }
  }

  // tell shows the number of a cell beside it.
  function tell(strip, column, aloud) {
    const o = strip.offering;
    const chance = o.chances[column];
    const text = chance < 0 ? `${exact(timeOf(column))}: unknown` : `${exact(timeOf(column))}: ${chance} %, from ${some(o.evidence[column])} launches`;
    tip.textContent = `${o.name}, ${text}`;
    tip.hidden = false;
    const box = strip.getBoundingClientRect();
    const x = box.left + (column + 0.5) * (box.width / data.columns);
    tip.style.left = `${Math.max(8, Math.min(innerWidth - tip.offsetWidth - 8, x - tip.offsetWidth / 2)) + scrollX}px`;
    tip.style.top = `${box.top + scrollY - tip.offsetHeight - 6}px`;
    if (aloud) {
      app.announce(tip.textContent);
    }
  }

  const stripOf = (event) => event.target.closest?.('.strip');
  rows.addEventListener('pointermove', (event) => {
    const strip = stripOf(event);
    if (!strip) {
      tip.hidden = true;
      return;
    }
    strip.column = Math.max(0, Math.min(data.columns - 1, Math.floor((event.offsetX / strip.clientWidth) * data.columns)));
    paint();
    tell(strip, strip.column, false);
  });
  rows.addEventListener('pointerleave', () => {
    tip.hidden = true;
    paint();
  });
  rows.addEventListener('focusin', (event) => {
    const strip = stripOf(event);
    if (strip) {
      focused[0] = Number(strip.dataset.row);
      paint();
      tell(strip, focused[1], true);
    }
  });
  rows.addEventListener('focusout', () => {
    tip.hidden = true;
    paint();
  });
  rows.addEventListener('keydown', (event) => {
    const strip = stripOf(event);
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -data.columns], End: [0, data.columns] }[event.key];
    if (!strip || !step) {
      return;
    }
    event.preventDefault();
    const strips = [...rows.querySelectorAll('.strip')];
    const i = Math.max(0, Math.min(strips.length - 1, focused[0] + step[0]));
    focused = [i, Math.max(0, Math.min(data.columns - 1, focused[1] + step[1]))];
    strips.forEach((s, k) => { s.tabIndex = k === i ? 0 : -1; });
    strips[i].focus();
    paint();
    tell(strips[i], focused[1], true);
  });

  // drawAttempts draws each launch on record: across is time, up is how many machines
  // were asked for.
  function drawAttempts() {
    const all = offerings().flatMap((o) => (o.attempts ?? []).map((a) => ({ ...a, group: o.name }))).filter((a) => a.at >= data.from);
    if (all.length === 0) {
      attempts.replaceChildren(el('p', { class: 'nothing' }, 'No launches in this time.'));
      return;
    }
    const [w, h, left, bottom] = [Math.max(300, attempts.clientWidth), 230, 34, 24];
    const most = Math.max(...all.map((a) => a.requested), 2);
    const x = (t) => left + 8 + ((t - data.from) / (data.to - data.from)) * (w - left - 20);
    const y = (n) => h - bottom - 12 - (Math.log2(n) / Math.log2(most)) * (h - bottom - 30);
    const lines = [];
    for (let n = 1; n <= most; n *= most > 64 ? 4 : 2) {
      lines.push(svg('line', { x1: left, x2: w, y1: y(n), y2: y(n), class: 'grid-line' }), svg('text', { x: left - 8, y: y(n) + 4, class: 'tick end' }, String(n)));
    }
    const seen = [...new Set(all.map((a) => a.class ?? ''))].sort();
    attempts.replaceChildren(
      svg('svg', { viewBox: `0 0 ${w} ${h}`, width: w, height: h, role: 'img', 'aria-label': `${plural(all.length, 'launch', 'launches')}, of which ${all.filter((a) => !a.class).length} succeeded` },
        lines,
        [data.from, (data.from + data.to) / 2, data.to].map((t, i) => svg('text', { x: x(t), y: h - 6, class: `tick ${['start', 'middle', 'end'][i]}` }, i === 2 ? 'now' : at(t))),
        svg('text', { x: 0, y: 11, class: 'tick' }, 'machines'),
        all.map((a) => mark(a.class ?? '', x(a.at), y(Math.max(1, a.requested)), `${exact(a.at)}, ${a.group}: ${a.got} of ${plural(a.requested, 'machine')}${a.class ? `, ${outcomes[a.class]?.name ?? a.class}` : ''}`))),
      el('p', { class: 'key small' }, seen.map((c) => el('span', {}, svg('svg', { width: 12, height: 12, 'aria-hidden': 'true' }, mark(c, 6, 6)), ` ${outcomes[c]?.name ?? c}`))));
  }

  function mark(outcome, x, y, title) {
    const shape = outcomes[outcome]?.shape ?? 'square';
    const path = {
      circle: `M${x - 4.5} ${y}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0`,
      cross: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8`,
      square: `M${x - 4} ${y - 4}h8v8h-8z`,
      triangle: `M${x} ${y - 5}l5 9h-10z`,
    }[shape];
    return svg('path', { d: path, class: `attempt ${shape}` }, title ? svg('title', {}, title) : null);
  }

  function drawSizes() {
    if (data.sizes.length === 0) {
      sizes.replaceChildren(el('p', { class: 'nothing' }, 'No launches yet.'));
      return;
    }
    sizes.replaceChildren(el('table', { class: 'bars' },
      el('thead', { class: 'hidden' }, el('tr', {}, ['Machines', 'Share that succeeded', 'Launches'].map((c) => el('th', { scope: 'col' }, c)))),
      el('tbody', {}, data.sizes.map((s) => {
        const all = s.got + s.failed;
        const text = s.atLeast === 1 ? '1 machine' : `${count(s.atLeast)} – ${count(2 * s.atLeast - 1)}`;
        return el('tr', {}, el('th', { scope: 'row' }, text),
          el('td', {}, el('span', { class: 'track', 'aria-hidden': 'true' }, el('i', { class: 'used', style: { width: `${(s.got / all) * 100}%` } }), el('i', { class: 'failed', style: { width: `${(s.failed / all) * 100}%` } }))),
          el('td', { class: 'number' }, el('b', {}, `${Math.round((s.got / all) * 100)} %`), el('span', { class: 'sub' }, `of ${count(all)}`)));
      }))),
      el('p', { class: 'small muted' }, data.sizesOf));
  }

  search.value = app.params.get('q') ?? '';
  let shown = location.search;
  const refresh = once(async () => {
    data = await app.get('obtainability', { window: app.params.get('window') ?? '' });
    draw();
  });
  return {
    refresh,
    redraw: () => data && draw(),
    changed() {
      if (location.search !== shown) {
        shown = location.search;
        refresh().catch(() => {});
      }
    },
  };
}
