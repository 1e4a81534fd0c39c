// Cost: what machines cost now and which teams use them, what was wasted, and prices.

import { el, once } from './dom.js';
import { at, count, plural, some, usd } from './format.js';
import { series, token } from './colour.js';

export const title = 'Cost';

// hours in a month, as clouds count it.
const month = 730;

// purposes of machines, in the order in which they are drawn.
const purposes = {
  used: { name: 'used by pods', class: 'used' },
  booked: { name: 'booked, without pods', class: 'booked' },
  incomplete: { name: 'gang incomplete', class: 'incomplete' },
  idle: { name: 'idle', class: 'idle' },
};

// meanOf a curve of rates, each of which holds until the next time.
function meanOf({ times, values }) {
  let seconds = 0;
  let sum = 0;
  values.forEach((v, i) => {
    const took = (times[i + 1] ?? times[i]) - times[i];
    if (v !== null && v !== undefined) {
      seconds += took;
      sum += took * v;
    }
  });
  return seconds > 0 ? sum / seconds : values.findLast((v) => v !== null) ?? 0;
}

// most lines are legible in one picture.
const most = 8;
// few rows of a table are shown unless all are asked for.
const few = 10;

export function mount(root, app) {
  let data = null;
  const charts = new Map(); // by the element that holds it: { look, plot }
  const whole = { teams: false, jobs: false }; // whether all rows are shown
  const headline = el('h1');
  const figures = el('dl', { class: 'figures' });
  const budgets = el('div', { class: 'picture' });
  const teams = el('div', { class: 'picture' });
  const groups = el('div', { class: 'picture' });
  const waste = el('div', { class: 'picture' });
  const spend = el('div', { class: 'chart' });
  const prices = el('div', { class: 'chart' });
  const jobs = el('div', { class: 'picture' });
  const source = el('p', { class: 'small muted' });

  root.append(
    el('section', { class: 'lead' }, headline, figures),
    el('section', { 'aria-labelledby': 'budgets' }, el('h2', { id: 'budgets' }, 'Budgets'), budgets),
    el('div', { class: 'columns' },
      el('section', { 'aria-labelledby': 'teams' }, el('h2', { id: 'teams' }, 'By namespace and queue'), teams),
      el('section', { 'aria-labelledby': 'spend' }, el('h2', { id: 'spend' }, 'Spend per hour'), spend)),
    el('section', { 'aria-labelledby': 'waste' }, el('h2', { id: 'waste' }, 'By purpose'), waste),
    el('div', { class: 'columns' },
      el('section', { 'aria-labelledby': 'prices' }, el('h2', { id: 'prices' }, 'Price per machine and hour'), prices),
      el('section', { 'aria-labelledby': 'groups' }, el('h2', { id: 'groups' }, 'By offering'), groups)),
    el('section', { 'aria-labelledby': 'jobs' }, el('h2', { id: 'jobs' }, 'Cost of each job'), jobs),
    source,
  );

  function draw() {
    headline.replaceChildren(usd(data.usdPerHour), el('span', { class: 'muted' }, ' per hour'));
    const machines = data.groups.reduce((n, g) => n + g.machines, 0);
    const all = data.waste.reduce((n, w) => n + w.usd, 0);
    const nothing = data.waste.filter((w) => w.purpose !== 'used').reduce((n, w) => n + w.usd, 0);
    figures.replaceChildren(
      ...figure('Per month', usd(meanOf(data.spend) * month), `at the mean rate since ${at(data.spend.times[0] * 1000)}`),
      ...figure('Machines', count(machines)),
      ...figure('Spent', usd(all), `since ${at(data.since)}`),
      ...figure('Not used by pods', usd(nothing), all > 0 ? `${some((nothing / all) * 100)} % of it` : ''));
    drawBudgets();
    drawTeams();
    drawGroups();
    drawWaste();
    drawJobs();
    source.textContent = [data.unpriced ? `Groups without a price, not included: ${data.unpriced.join(', ')}.` : '', data.source].join(' ');
    drawCharts();
  }

  function figure(name, value, more) {
    return [el('div', {}, el('dt', {}, name), el('dd', {}, el('b', {}, value), more ? el('span', { class: 'sub' }, more) : null))];
  }

  // drawBudgets draws what is spent of each budget. One that runs out before its period ends is first.
  function drawBudgets() {
    const list = (data.budgets ?? []).map((b) => ({ ...b, part: b.usd > 0 ? b.usdSpent / b.usd : 1 }));
    if (list.length === 0) {
      budgets.replaceChildren(el('p', { class: 'nothing' }, 'No CapacityPolicy has a budget: spec.budgets of one bounds what its namespaces spend in a day, week or month.'));
      return;
    }
    const runsOut = (b) => b.runsOut || b.part >= 1;
    list.sort((a, b) => runsOut(b) - runsOut(a) || b.part - a.part);
    budgets.replaceChildren(el('div', { class: 'scroll' }, el('table', { class: 'plain' },
      el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'Budget'), el('th', { scope: 'col', class: 'wide' }, 'Share spent'),
        ...['Spent', 'In vain', 'USD/h now'].map((c) => el('th', { scope: 'col', class: 'wide number' }, c)), ...['Left', 'Lasts'].map((c) => el('th', { scope: 'col', class: 'number' }, c)))),
      el('tbody', {}, list.map((b) => el('tr', {},
        el('th', { scope: 'row' }, b.budget, el('span', { class: 'sub' }, `${b.capacityPolicy}, per ${b.period}`)),
        el('td', { class: 'wide' }, el('span', { class: 'track', 'aria-hidden': 'true' }, el('i', { class: runsOut(b) ? 'never' : 'used', style: { width: `${Math.min(1, b.part) * 100}%` } }))),
        el('td', { class: 'wide number' }, usd(Number(b.usdSpent))),
        el('td', { class: 'wide number' }, usd(Number(b.usdSpentInVain)), el('span', { class: 'sub' }, `of ${usd(Number(b.usdVainLimit))}`)),
        el('td', { class: 'wide number' }, usd(Number(b.usdPerHour))),
        el('td', { class: 'number' }, el('b', {}, usd(Number(b.usdLeft))), el('span', { class: 'sub' }, `of ${usd(Number(b.usd))}`)),
        el('td', { class: 'number' }, ...lasts(b))))))));
  }

  // lasts says how long the rest of a budget lasts at the rate of now.
  function lasts(b) {
    if (b.runsOut) {
      return [el('b', { class: 'bad' }, at(Date.parse(b.runsOut))), el('span', { class: 'sub' }, `ends ${at(Date.parse(b.ends))}`)];
    }
    return [b.part >= 1 ? el('b', { class: 'bad' }, 'spent') : 'to its end', el('span', { class: 'sub' }, at(Date.parse(b.ends)))];
  }

  // bars is a table of amounts with a bar each.
  function bars(rows, head, none) {
    if (rows.length === 0) {
      return el('p', { class: 'nothing' }, none);
    }
    const largest = Math.max(...rows.map((r) => r.usdPerHour), 0.01);
    return el('table', { class: 'bars' },
      el('thead', { class: 'hidden' }, el('tr', {}, head.map((c) => el('th', { scope: 'col' }, c)))),
      el('tbody', {}, rows.map((r) => el('tr', {},
        el('th', { scope: 'row' }, r.name, r.sub ? el('span', { class: 'sub' }, r.sub) : null),
        el('td', {}, el('span', { class: 'track bare', 'aria-hidden': 'true' }, el('i', { class: r.class, style: { width: `${(r.usdPerHour / largest) * 100}%` } }))),
        el('td', { class: 'number' }, el('b', {}, usd(r.usdPerHour)), r.machines ? el('span', { class: 'sub' }, plural(r.machines, 'machine')) : null)))));
  }

  function drawTeams() {
    const rows = data.teams.map((t) => ({
      name: t.namespace || 'none', sub: t.namespace ? t.queue || 'no queue' : 'idle, or being terminated', usdPerHour: t.usdPerHour, class: t.namespace ? 'used' : 'idle',
    }));
    teams.replaceChildren(bars(cut(rows, 'teams'), ['Namespace and LocalQueue', 'Share', 'USD per hour'], 'There are no machines.'), toggle(rows, 'teams'));
  }

  function drawGroups() {
    const rows = data.groups.filter((g) => g.machines > 0).slice(0, few).map((g) => ({
      name: g.name, sub: [g.provider, g.capacityType].join(' · '), usdPerHour: g.usdPerHour * g.machines, machines: g.machines, class: 'used',
    }));
    groups.replaceChildren(bars(rows, ['Offering', 'Share', 'USD per hour'], 'There are no machines.'));
  }

  function cut(rows, name) {
    return whole[name] ? rows : rows.slice(0, few);
  }

  function toggle(rows, name) {
    return rows.length <= few ? '' : el('button', { class: 'quiet', type: 'button', onclick: () => { whole[name] = !whole[name]; draw(); } }, whole[name] ? 'Show fewer' : `Show all ${count(rows.length)}`);
  }

  function drawWaste() {
    const sum = data.waste.reduce((n, w) => n + w.usd, 0);
    if (data.waste.length === 0) {
      waste.replaceChildren(el('p', { class: 'nothing' }, 'No machine was seen yet.'));
      return;
    }
    const by = Object.fromEntries(data.waste.map((w) => [w.purpose, w]));
    const list = Object.keys(purposes).filter((p) => by[p]);
    waste.replaceChildren(
      el('div', { class: 'shares tall', 'aria-hidden': 'true' }, list.map((p) => el('i', { class: `share ${purposes[p].class}`, style: { 'flex-grow': by[p].usd }, title: `${purposes[p].name}: ${usd(by[p].usd)}` }))),
      el('dl', { class: 'figures small-figures' }, list.map((p) => el('div', {},
        el('dt', {}, el('i', { class: `swatch ${purposes[p].class}`, 'aria-hidden': 'true' }), purposes[p].name),
        el('dd', {}, el('b', {}, usd(by[p].usd)), el('span', { class: 'sub' }, [sum > 0 ? `${some((by[p].usd / sum) * 100)} %` : '', `${some(by[p].seconds / 3600)} machine-hours`].filter(Boolean).join(', ')))))));
  }

  function drawJobs() {
    if (data.jobs.length === 0) {
      jobs.replaceChildren(el('p', { class: 'nothing' }, 'No job has machines.'));
      return;
    }
    jobs.replaceChildren(
      el('div', { class: 'scroll' }, el('table', { class: 'plain' },
        el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'Job'), el('th', { scope: 'col', class: 'wide' }, 'Queue'), ...['Machines', 'USD/h', 'So far'].map((c) => el('th', { scope: 'col', class: 'number' }, c)))),
        el('tbody', {}, cut(data.jobs, 'jobs').map((j) => el('tr', {},
          el('th', { scope: 'row' }, j.workload ? el('button', { class: 'link', type: 'button', onclick: () => app.set({ job: `${j.namespace}/${j.workload}` }, { push: true }) }, j.name.replace(/^job\//, '')) : j.name, el('span', { class: 'sub' }, j.namespace)),
          el('td', { class: 'wide' }, j.queue),
          el('td', { class: 'number' }, count(j.machines)),
          el('td', { class: 'number' }, usd(j.usdPerHour)),
          el('td', { class: 'number' }, el('b', {}, usd(j.usd)))))))),
      toggle(data.jobs, 'jobs'));
  }

  // drawCharts draws the curves, for which uPlot is loaded when it is needed first.
  async function drawCharts() {
    const { default: Plot } = await import('./uplot/uPlot.esm.js');
    chart(Plot, spend, data.spend.times, [{ name: 'all machines', values: data.spend.values }], 'Not enough data yet.', '');
    const rest = data.prices.series.length - most;
    chart(Plot, prices, data.prices.times, data.prices.series.slice(0, most), 'No prices are known.', rest > 0 ? `The ${most} most expensive of ${count(data.prices.series.length)}.` : '');
  }

  // placeOf a line is that of its name among all names, so that its colour does not follow what is dearest now.
  function placeOf(name, lines) {
    return lines.map((l) => l.name).sort().indexOf(name);
  }

  // chart draws one, or gives the one that is there its new values.
  function chart(Plot, into, times, lines, none, note) {
    const look = JSON.stringify([lines.map((l) => l.name), into.clientWidth, token('muted'), times.length < 2]);
    const values = [times, ...lines.map((l) => l.values)];
    if (charts.get(into)?.look === look) {
      charts.get(into).plot?.setData(values);
      return;
    }
    charts.get(into)?.plot?.destroy();
    into.replaceChildren();
    if (times.length < 2 || lines.length === 0) {
      into.append(el('p', { class: 'nothing' }, none));
      charts.set(into, { look });
      return;
    }
    const single = lines.length === 1;
    const ink = { stroke: token('muted'), grid: { stroke: token('line'), width: 1 }, ticks: { show: false }, font: '12px system-ui, sans-serif' };
    const plot = new Plot({
      width: Math.max(280, into.clientWidth - 24), height: 230, cursor: { y: false, points: { size: 7 } },
      scales: { y: { range: (_, low, high) => [single ? 0 : 0.9 * low, Math.max(high * 1.05, 0.01)] } },
      axes: [{ ...ink, values: (_, ticks) => ticks.map((t) => at(t * 1000)) }, { ...ink, size: 66, values: (_, ticks) => ticks.map((t) => usd(t)) }],
      series: [{ label: 'Time', value: (_, t) => (t ? at(t * 1000) : '–') }, ...lines.map((l, i) => ({
        label: l.name, stroke: series(placeOf(l.name, lines)), width: 2, dash: placeOf(l.name, lines) % 2 ? [6, 3] : [], paths: Plot.paths.stepped({ align: 1 }), points: { show: false },
        fill: single ? token('wash') : undefined, value: (_, v) => (v === null || v === undefined ? '–' : usd(v)),
      }))],
    }, values, into);
    const last = lines.map((l) => `${l.name} ${usd(l.values.findLast((v) => v !== null) ?? 0)}`);
    const canvas = into.querySelector('canvas');
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', `Curves from ${at(times[0] * 1000)} on; last ${last.join(', ')}`);
    if (note) {
      into.append(el('p', { class: 'small muted note' }, note));
    }
    charts.set(into, { look, plot });
  }

  return {
    refresh: once(async () => {
      data = await app.get('cost');
      draw();
    }),
    redraw: () => data && draw(),
    changed() {},
    leave: () => charts.forEach((c) => c.plot?.destroy()),
  };
}
