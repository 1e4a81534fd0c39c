// The phases of a job as a bar over time.

import { el } from './dom.js';
import { at, span } from './format.js';

// kinds of phases: the words, and the class that gives a colour and a pattern.
const kinds = {
  Waiting: ['waiting', 'phase-waiting'],
  Starting: ['booting', 'phase-starting'],
  Running: ['running', 'phase-running'],
  Stopping: ['stopping', 'phase-stopping'],
  Held: ['held', 'phase-waiting'],
};

export function legend() {
  return el('p', { class: 'key small muted', 'aria-hidden': 'true' },
    ['Waiting', 'Starting', 'Running', 'Stopping'].map((k) => el('span', {}, el('i', { class: `swatch ${kinds[k][1]}` }), kinds[k][0])));
}

// words of phases: how long each took, for the last one until now.
export function words(phases, now) {
  const parts = phases.filter((p, i) => i === phases.length - 1 || p.to - p.from >= 1000)
    .map((p) => `${kinds[p.state]?.[0] ?? p.state} ${span(((p.to || now) - p.from) / 1000)}`);
  return { all: parts.join(', '), short: parts.at(-1) };
}

// bar draws phases from one time to another.
export function bar(phases, from, to) {
  const place = (ms) => Math.max(0, Math.min(100, ((ms - from) / (to - from)) * 100));
  const last = phases.at(-1);
  const text = `${words(phases, to).all}${last.to ? `; ended ${at(last.to)}` : ''}`;
  return el('div', { class: 'phases', role: 'img', 'aria-label': text, title: text },
    phases.map((p) => {
      const [start, end] = [place(p.from), place(p.to || to)];
      return p.to && p.to < from ? null : el('i', { class: kinds[p.state]?.[1] ?? 'phase-waiting', style: { left: `${start}%`, width: `${Math.max(0.25, end - start)}%` } });
    }));
}

// axisOf labels a stretch of time at both ends and between.
export function axisOf(from, to, end = 'now') {
  return [0, 1, 2, 3].map((i) => el('span', { class: i % 2 ? 'wide' : null, style: { left: `${(i / 4) * 100}%` } }, at(from + ((to - from) * i) / 4)))
    .concat(el('span', { class: 'last', style: { left: '100%' } }, end));
}
