// Spend over time: what was spent each day, as stacked columns.

import { el, follow, table } from './dom.js';
import { count, usd } from './format.js';

const periods = [[7 * 86400, '7 days'], [35 * 86400, '5 weeks']];
const kinds = [['namespace', 'namespace'], ['queue', 'queue'], ['user', 'user'], ['group', 'offering'], ['purpose', 'purpose']];
// most names have a colour of their own; the rest is one.
const most = 7;
const day = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric', timeZone: 'UTC' });
const none = { namespace: 'no team', queue: 'no queue', user: 'not recorded', group: 'none', purpose: 'none' };

// spendOverTime makes the section; its period and kind are in the address.
export function spendOverTime(app) {
  let data = null;
  const period = el('select', { 'aria-label': 'Period of the spend', onchange: () => app.set({ period: period.value }) },
    periods.map(([seconds, text]) => el('option', { value: seconds }, text)));
  const by = el('select', { 'aria-label': 'Spend by', onchange: () => app.set({ by: by.value }) },
    kinds.map(([value, text]) => el('option', { value }, `by ${text}`)));
  const file = el('a', { class: 'quiet', download: true }, 'CSV');
  const body = el('div', { class: 'picture' });
  const node = el('section', { 'aria-labelledby': 'spend-over-time' },
    el('div', { class: 'title' }, el('h2', { id: 'spend-over-time' }, 'Spend over time'), el('div', { class: 'tools' }, by, period, file)), body);
  const chosen = () => ({ window: app.params.get('period') ?? '', by: app.params.get('by') ?? '' });

  function inputs() {
    const { window, by: kind } = chosen();
    period.value = window || String(periods[0][0]);
    by.value = kind || 'namespace';
    file.setAttribute('href', `/api/spend.csv?${new URLSearchParams({ window: period.value, by: by.value })}`);
  }

  // layers are the series in the order of their sums, the small ones together.
  function layers() {
    const name = (s) => s.name || none[data.by];
    const large = data.spend.slice(0, data.spend.length > most + 1 ? most : most + 1);
    const rest = data.spend.slice(large.length);
    const names = large.map(name).sort();
    const out = large.map((s) => ({ name: name(s), usd: s.usd, sum: s.sum, colour: names.indexOf(name(s)) }));
    if (rest.length > 0) {
      out.push({ name: `${count(rest.length)} others`, usd: data.days.map((_, i) => rest.reduce((n, s) => n + s.usd[i], 0)), sum: rest.reduce((n, s) => n + s.sum, 0), colour: 7 });
    }
    return out;
  }

  const look = (colour) => ({ class: `layer${colour % 2 ? ' striped' : ''}`, colour: `var(--series-${(colour % 8) + 1})` });

  function draw() {
    if (data.spend.length === 0) {
      body.replaceChildren(el('p', { class: 'nothing' }, data.why || 'Nothing was spent in this period, or it is not recorded yet: Muster writes it once a minute.'));
      return;
    }
    const all = layers();
    const sums = data.days.map((_, i) => all.reduce((n, l) => n + l.usd[i], 0));
    const largest = Math.max(...sums, 0.01);
    const total = sums.reduce((n, s) => n + s, 0);
    const every = Math.ceil(data.days.length / 7);
    const label = (d) => day.format(Date.parse(d));
    body.replaceChildren(
      el('div', { class: 'stack', role: 'img', 'aria-label': `Spend each day, ${usd(total)} in all; most on ${label(data.days[sums.indexOf(Math.max(...sums))])}, ${usd(Math.max(...sums))}` },
        el('span', { class: 'stack-top small muted' }, usd(largest)),
        data.days.map((d, i) => el('div', { class: 'stack-day', title: `${label(d)}: ${usd(sums[i])}` },
          el('div', { class: 'stack-column' }, all.toReversed().map((l) => {
            const { class: kind, colour } = look(l.colour);
            return l.usd[i] > 0 ? el('i', { class: kind, style: { height: `${(l.usd[i] / largest) * 100}%`, '--ink': colour } }) : null;
          })),
          el('span', { class: 'small muted' }, (data.days.length - 1 - i) % every === 0 ? label(d) : ' ')))),
      table([kinds.find(([k]) => k === data.by)[1], 'USD', 'Share'], [1, 2], all.map((l) => {
        const { class: kind, colour } = look(l.colour);
        return [el('span', { class: 'with-swatch' }, el('i', { class: `swatch ${kind}`, 'aria-hidden': 'true', style: { '--ink': colour } }), l.name), usd(l.sum), `${Math.round((l.sum / total) * 100)} %`];
      }).concat([['All', usd(total), '100 %']])),
      el('p', { class: 'small muted' }, 'Days are those of UTC. ', data.by === 'user' ? 'Idle machines are no user’s.' : ''));
  }

  return {
    node,
    ...follow(chosen, inputs, async () => {
      data = await app.get('spend', chosen());
      draw();
    }),
  };
}
