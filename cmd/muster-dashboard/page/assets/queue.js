// The queues: quota and usage of each ClusterQueue, its pending jobs, what each waits for and
// when it is expected to start.

import { el, once } from './dom.js';
import { at, count, exact, plural, span } from './format.js';
import { known } from './explain.js';
import { virtualList } from './list.js';

export const title = 'Queue';

// families are the colours and shapes of reasons.
const families = {
  '': 'turn',
  PendingEvaluation: 'turn',
  WaitingForCapacity: 'machines',
  WaitingForQuota: 'quota',
  WaitingForNamespaceQuota: 'quota',
  WaitingForPreemptedWorkloads: 'room',
  WaitingForPodsReady: 'held',
  Suspended: 'held',
  AdmissionGated: 'held',
  Never: 'never',
};
const family = (reason) => families[reason] ?? 'held';

// few queues are shown at first, fewer on a phone.
const few = () => (innerWidth < 700 ? 3 : 8);

export function mount(root, app) {
  let all = false; // whether all queues are shown
  let queues = [];
  let said = ''; // the headline that was read out last
  let scale = (ms) => ms; // from a time to a place on the axis, from 0 to 1

  const headline = el('h1');
  const shares = el('div', { class: 'shares' });
  const chips = el('div', { class: 'chips', role: 'group', 'aria-label': 'Filter by reason' });
  const cards = el('div', { class: 'cards' });
  const more = el('button', { class: 'quiet', type: 'button', onclick: () => { all = !all; showCards(); } });
  const search = el('input', {
    type: 'search', placeholder: 'Job, namespace or reason', 'aria-label': 'Search the pending jobs', autocomplete: 'off', spellcheck: 'false',
    oninput: () => { clearTimeout(typing); typing = setTimeout(() => app.set({ q: search.value.trim() }), 150); },
  });
  let typing = 0;
  const order = el('select', { 'aria-label': 'Order', onchange: () => app.set({ order: order.value }) },
    el('option', { value: '' }, 'Queue order'),
    el('option', { value: 'start' }, 'Expected start'),
    el('option', { value: 'age' }, 'Longest wait'));
  const found = el('p', { class: 'found', 'aria-live': 'polite' });
  const axis = el('div', { class: 'axis' });
  const foresight = el('p', { class: 'small muted' });

  const filter = () => ({ queue: app.params.get('queue') ?? '', why: app.params.get('why') ?? '', q: app.params.get('q') ?? '', order: app.params.get('order') ?? '' });
  let shown = JSON.stringify(filter());

  const list = virtualList({
    label: 'Pending jobs',
    empty: 'No pending jobs.',
    columns: [
      { title: '#', class: 'place' }, { title: 'Job', class: 'job' }, { title: 'Why it waits', class: 'why' },
      { title: el('div', {}, 'Expected start', axis), class: 'start' }, { title: 'Next try', class: 'next' }, { title: 'Waited', class: 'age' },
    ],
    load: async (from, number) => {
      const answer = await app.get('queue/rows', { ...filter(), from, count: number });
      setAxis(answer.axis);
      found.textContent = plural(answer.total, 'job');
      return answer;
    },
    draw: (row) => [
      el('div', { class: `cell place${row.position ? '' : ' none'}` }, row.position ? count(row.position) : '–'),
      el('div', { class: 'cell job' },
        el('span', { class: 'name', title: `${row.namespace}/${row.name}` }, row.name.replace(/^job\//, '')),
        el('span', { class: 'sub' }, [...new Set([row.namespace, row.queue]), row.requests, row.priority ? `priority ${row.priority}` : null].filter(Boolean).join(' · '))),
      el('div', { class: 'cell why', title: row.message || null },
        el('span', { class: 'words' }, el('span', { class: `mark ${family(row.reason)}`, 'aria-hidden': 'true' }), el('span', {}, row.words)),
        el('span', { class: 'sub' }, row.message)),
      el('div', { class: 'cell start' }, expected(row)),
      el('div', { class: 'cell next' }, row.next ? [el('span', {}, at(row.next)), el('span', { class: 'sub' }, `in ${span((row.next - Date.now()) / 1000)}`)] : el('span', { class: 'muted', title: 'Waits for a change' }, '–')),
      el('div', { class: 'cell age' }, span((Date.now() - row.created) / 1000)),
    ],
    open: (row) => {
      known(row);
      app.set({ job: `${row.namespace}/${row.workload}` }, { push: true });
    },
  });

  root.append(
    el('section', { class: 'lead', 'aria-label': 'Pending jobs by reason' }, headline, shares, chips),
    el('section', { 'aria-labelledby': 'quota' },
      el('div', { class: 'title' }, el('h2', { id: 'quota' }, 'Quota in use'),
        el('p', { class: 'key small muted', 'aria-hidden': 'true' }, [['used', 'in use'], ['borrowed', 'borrowed'], ['free', 'free']].map(([kind, text]) => el('span', {}, el('i', { class: `swatch ${kind}` }), text)))),
      cards, more),
    el('section', { 'aria-labelledby': 'line' },
      el('div', { class: 'title' }, el('h2', { id: 'line' }, 'Pending'), found, el('div', { class: 'tools' }, search, order)),
      list.node, foresight),
  );

  // expected draws when a job will start: a bar for the range, a dot for the middle.
  function expected(row) {
    if (row.after) {
      return el('span', { class: 'muted', title: 'The run times of these jobs are unknown.' }, row.after);
    }
    if (row.foreseen !== 'yes') {
      return el('span', { class: 'muted' }, { no: 'unknown', beyond: 'not within 7 days', '': '–' }[row.foreseen] ?? '–');
    }
    const from = scale(row.early || row.start);
    const to = row.late ? scale(row.late) : 1;
    const range = row.early && row.late ? `${at(row.early)} to ${at(row.late)}` : row.early ? `from ${at(row.early)}, possibly not within 7 days` : '';
    const when = row.start ? at(row.start) : `not before ${at(row.early)}`;
    return [
      el('div', { class: `range${row.late ? '' : ' open'}`, role: 'img', 'aria-label': `expected ${when}; most likely ${range}`, title: `Most likely ${range}` },
        el('i', { class: 'bar', style: { left: `${from * 100}%`, width: `${Math.max(0.8, (to - from) * 100)}%` } }),
        row.start ? el('i', { class: 'dot', style: { left: `${scale(row.start) * 100}%` } }) : null),
      el('span', { class: 'sub' }, el('b', {}, when), row.start ? ` in ${span((row.start - Date.now()) / 1000)}` : ''),
    ];
  }

  // setAxis draws time on a logarithmic scale: the near future in minutes, the far in days.
  function setAxis([now, end]) {
    const soon = 5 * 60_000;
    const whole = Math.log1p(Math.max(end - now, 3_600_000) / soon);
    scale = (ms) => Math.max(0, Math.min(1, Math.log1p(Math.max(0, ms - now) / soon) / whole));
    const ticks = [[0, 'now'], [15, '15m'], [60, '1h'], [360, '6h'], [1440, '1d'], [4320, '3d'], [10080, '7d']]
      .map(([minutes, text]) => [scale(now + minutes * 60_000), text])
      .filter(([x], i, others) => i === 0 || (x < 1 || others[i - 1][0] < 0.9) && x > others[i - 1][0]);
    axis.replaceChildren(...ticks.map(([x, text]) => el('span', { style: { left: `${x * 100}%` } }, text)));
  }

  function showCards() {
    const chosen = app.params.get('queue');
    const some = all || queues.length <= few() ? queues : queues.slice(0, few());
    cards.replaceChildren(...some.map((q) => card(q, q.name === chosen)));
    more.hidden = queues.length <= few();
    more.textContent = all ? 'Show fewer' : `Show all ${count(queues.length)}`;
  }

  function card(q, chosen) {
    return el('button', {
      class: 'card', type: 'button', 'aria-pressed': chosen ? 'true' : 'false',
      onclick: () => app.set({ queue: chosen ? '' : q.name }),
    },
      el('span', { class: 'card-title' }, el('b', {}, q.name), q.cohort ? el('span', { class: 'muted' }, ` in ${q.cohort}`) : null,
        el('span', { class: 'waiting' }, q.pending ? `${count(q.pending)} pending` : 'none pending')),
      q.stopped ? el('span', { class: 'stopped small' }, el('span', { class: 'mark held', 'aria-hidden': 'true' }), q.stopped) : null,
      q.usage.map(usage));
  }

  // usage is a bar of one resource of a flavor. The track is the nominal quota, and grows
  // where something is borrowed.
  function usage(u) {
    const whole = Math.max(u.nominal, u.used, 1);
    const own = Math.min(u.used, u.nominal);
    const borrowed = u.used - own;
    return el('span', { class: 'usage' },
      el('span', { class: 'usage-name' }, u.flavor, ' ', el('span', { class: 'muted' }, u.resource)),
      el('span', { class: 'usage-amount' }, el('b', {}, u.usedText), ` of ${u.nominalText}`, borrowed > 0 ? el('span', { class: 'muted' }, `, ${u.borrowedText} borrowed`) : null, u.temporaryText ? el('span', { class: 'muted' }, u.temporaryText) : null),
      el('span', { class: 'track', 'aria-hidden': 'true' },
        el('i', { class: 'used', style: { width: `${(own / whole) * 100}%` } }),
        el('i', { class: 'borrowed', style: { width: `${(borrowed / whole) * 100}%` } })));
  }

  function showReasons(data) {
    const chosen = app.params.get('why') ?? '';
    shares.replaceChildren(...data.reasons.map((r) => el('i', {
      class: `share ${family(r.reason)}`, style: { 'flex-grow': r.count }, title: `${r.words}: ${count(r.count)}`,
    })));
    chips.replaceChildren(...data.reasons.map((r) => {
      const name = r.reason || 'Turn';
      const on = chosen === name;
      return el('button', { class: 'chip', type: 'button', 'aria-pressed': on ? 'true' : 'false', onclick: () => app.set({ why: on ? '' : name }) },
        el('span', { class: `mark ${family(r.reason)}`, 'aria-hidden': 'true' }), r.words, el('b', {}, count(r.count)));
    }));
  }

  async function summary() {
    const data = await app.get('queue');
    const now = data.pending === 0 ? 'No jobs pending' : `${plural(data.pending, 'job')} pending`;
    if (said && said !== now) {
      app.announce(now);
    }
    said = now;
    headline.replaceChildren(now, data.never ? el('span', { class: 'bad' }, `, ${count(data.never)} cannot start`) : '',
      el('span', { class: 'muted' }, `, ${count(data.admitted)} running`));
    queues = data.queues;
    showCards();
    showReasons(data);
    foresight.textContent = data.forecast.at ? `Forecast of ${exact(data.forecast.at)}, without new jobs of higher priority; the bar covers 8 of 10 cases. ${data.forecast.words}` : data.forecast.words;
  }

  function inputs() {
    const f = filter();
    if (document.activeElement !== search) {
      search.value = f.q;
    }
    order.value = f.order;
  }
  inputs();

  return {
    refresh: once(() => Promise.all([summary(), list.refresh()])),
    redraw: () => { showCards(); list.render(); },
    changed() {
      const now = JSON.stringify(filter());
      if (now === shown) {
        return;
      }
      shown = now;
      inputs();
      showCards();
      summary().catch(() => {});
      list.reset().catch(() => {});
    },
    leave: () => list.leave(),
  };
}
