// What `kubectl muster explain` says about a job, in a dialog.

import { el } from './dom.js';
import { at, plural, usd } from './format.js';
import { axisOf, bar, legend, words } from './phases.js';

const dialog = document.getElementById('explain');
let open = ''; // the job that is shown
let app = null;
let loading = false; // whether an answer is waited for
let row = null; // what the line says about the job that was chosen last

// known is what the row says about a job. It is shown until the full explanation is there,
// which takes a while if it needs a forecast.
export function known(chosen) {
  row = chosen;
}

// explain shows a job, named as in the address: NAMESPACE/WORKLOAD.
export async function explain(of, job) {
  app = of;
  if (open === job) {
    return;
  }
  open = job;
  show(workloadOf(job), [
    row && `${row.namespace}/${row.workload}` === job ? el('p', { class: 'sentence' }, `It ${row.words}.`) : null,
    row && `${row.namespace}/${row.workload}` === job && row.message ? el('p', {}, row.message) : null,
    el('p', { class: 'muted' }, 'Loading…'),
  ]);
  if (!dialog.open) {
    dialog.showModal();
  }
  try {
    await load(job);
  } catch (error) {
    if (open === job) {
      show(workloadOf(job), [el('p', { class: 'notice bad' }, error.message)]);
    }
  }
}

// refreshExplain has a dialog that is open follow the newest decision. Where that fails it stays
// as it is, and the page says that it is stale.
export async function refreshExplain() {
  if (open && !loading) {
    await load(open).catch(() => {});
  }
}

async function load(job) {
  loading = true;
  try {
    const answer = await app.get('explain', { namespace: job.slice(0, job.indexOf('/')), workload: workloadOf(job) });
    if (open === job) {
      show(`${answer.kind} ${answer.namespace}/${answer.name}`, content(answer));
    }
  } finally {
    loading = false;
  }
}

function workloadOf(job) {
  return job.slice(job.indexOf('/') + 1);
}

export function closeExplain() {
  open = '';
  if (dialog.open) {
    dialog.close();
  }
}

// However it was closed, the address follows.
dialog.addEventListener('close', () => {
  if (open) {
    open = '';
    app.set({ job: '' }, { push: true });
  }
});
dialog.addEventListener('click', (event) => {
  if (event.target === dialog) {
    dialog.close(); // beside it
  }
});

// show replaces what the dialog says; a reader keeps the place in it, and the focus.
function show(heading, body) {
  const scrolled = dialog.scrollTop;
  const focused = dialog.querySelector('.close') === document.activeElement;
  dialog.replaceChildren(el('div', { class: 'sheet' },
    el('header', {}, el('h2', { id: 'explain-title' }, heading), el('button', { class: 'quiet close', type: 'button', 'aria-label': 'Close', onclick: () => dialog.close() }, '✕')),
    ...body));
  dialog.scrollTop = scrolled;
  if (focused) {
    dialog.querySelector('.close').focus();
  }
}

function content(e) {
  const place = e.place;
  return [
    el('p', { class: 'sentence' }, `It ${e.summary}.`),
    place ? el('p', { class: 'muted' }, `ClusterQueue ${place.clusterQueue}, LocalQueue ${place.localQueue}, priority ${place.priority}`,
      place.position ? `: position ${place.position} of ${place.pending}, waiting for ${place.waited}` : '') : null,
    overTime(e.job),
    sentences('Why', e.causes),
    sentences('What would change this', e.unblock),
    sentences('Order of its pod sets', e.order),
    sentences('Expected start', e.expected?.words),
    e.expected?.basis ? el('p', { class: 'small muted' }, `There, ${e.expected.basis}.`) : null,
    table(`Machines that it has${e.job.nodeCount > most ? `, ${most} of ${e.job.nodeCount}` : ''}`, ['Node', 'Group', 'State'], e.job.nodes?.slice(0, most).map((n) => [n.name, n.group, n.words ? `${n.state}: ${n.words}` : n.state])),
    table('Quota', ['Flavor', 'Resource', 'Requested', 'Free', 'Short', 'Maximum'], e.quota?.map((q) => [q.flavor, q.resource, q.requested, q.free, q.short, q.whole])),
    table('Machines', ['Group', 'Capacity type', 'USD/h', 'Machines', 'Needed', 'Chance', 'Last failure', 'Why not'],
      e.capacity?.map((c) => [c.group, c.capacityType, c.usdPerHour, `${c.machines} of ${c.maxMachines}`, c.needed || '', c.chancePercent === undefined ? '' : `${c.chancePercent}%`, c.lastFailure, c.why])),
    table('Workloads with this quota', ['Workload', 'Queue', 'Priority', 'Uses'], e.holders?.map((h) => [h.workload, h.clusterQueue, h.priority, h.has + (h.borrows ? ', borrowed' : '')])),
    table('Requests with these machines', ['Group', 'Request', 'Priority', 'Machines', 'Pods'], e.machines?.map((m) => [m.group, m.provisioningRequest, m.priority, m.machines, m.pods])),
    el('p', { class: 'small muted' }, 'In a terminal: ', el('code', {}, `kubectl muster explain ${(e.kind === 'Job' ? 'job' : 'workload')}/${e.name} -n ${e.namespace}`)),
  ];
}

// overTime draws the phases of a job, with its user, its cost and its evictions.
function overTime(job) {
  const first = job.phases[0].from;
  const last = job.phases.at(-1).to || job.now;
  const evicted = (job.evictions ?? []).map((v) => `${v.reason ? `${v.reason} ` : ''}${v.count}×`).join(', ');
  const facts = [
    ['Submitted', job.user ? `${at(first)} by ${job.user}` : at(first)],
    ['Size', [plural(job.pods, 'pod'), job.devices].filter(Boolean).join(', ')],
    ['Cost so far', job.usd ? usd(Number(job.usd)) + (Number(job.usdPerHour) > 0 ? `, ${usd(Number(job.usdPerHour))} per hour` : '') : ''],
    ['Machines', job.nodeCount ? plural(job.nodeCount, 'machine') : ''],
    ['Evicted before', evicted],
  ].filter(([, text]) => text);
  return el('section', { class: 'over-time' },
    el('div', { class: 'title' }, el('h3', {}, `${job.state}: ${words(job.phases, job.now).all}`), legend()),
    bar(job.phases, first, Math.max(last, first + 1000)),
    el('div', { class: 'axis', 'aria-hidden': 'true' }, axisOf(first, last, job.phases.at(-1).to ? at(last) : 'now')),
    el('dl', { class: 'figures small-figures' }, facts.map(([name, text]) => el('div', {}, el('dt', {}, name), el('dd', {}, text)))));
}

function sentences(heading, items) {
  return items?.length ? el('section', {}, el('h3', {}, heading), el('ul', {}, items.map((i) => el('li', {}, i)))) : null;
}

// most rows of a table: a cluster may have hundreds of groups with the same answer.
const most = 12;

function table(heading, columns, rows) {
  if (!rows?.length) {
    return null;
  }
  // A column that is empty in all rows is left out.
  const said = columns.map((_, i) => rows.some((r) => r[i] !== undefined && r[i] !== ''));
  const pick = (cells) => cells.filter((_, i) => said[i]);
  return el('section', {}, el('h3', {}, heading),
    el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': heading }, el('table', {},
      el('thead', {}, el('tr', {}, pick(columns).map((c) => el('th', { scope: 'col' }, c)))),
      el('tbody', {}, rows.slice(0, most).map((r) => el('tr', {}, pick(r).map((c) => el('td', {}, c ?? ''))))))),
    rows.length > most ? el('p', { class: 'small muted' }, `and ${rows.length - most} more`) : null);
}
