// Jobs: those that have or had quota, over time, by queue.

import { el, follow } from './dom.js';
import { count, plural } from './format.js';
import { axisOf, bar, legend, words } from './phases.js';

export const title = 'Jobs';

// windows that can be shown, in seconds.
const windows = [[6 * 3600, '6 hours'], [24 * 3600, '24 hours'], [7 * 86400, '7 days'], [35 * 86400, '5 weeks']];

export function mount(root, app) {
  let data = null;
  let typing = 0;
  const headline = el('h1');
  const note = el('p', { class: 'muted', hidden: true });
  const search = el('input', {
    type: 'search', placeholder: 'Job, namespace, queue or user', 'aria-label': 'Search the jobs', autocomplete: 'off', spellcheck: 'false',
    oninput: () => { clearTimeout(typing); typing = setTimeout(() => app.set({ q: search.value.trim() }), 150); },
  });
  const period = el('select', { 'aria-label': 'Period', onchange: () => app.set({ window: period.value }) },
    windows.map(([seconds, text]) => el('option', { value: seconds }, text)));
  const axis = el('div', { class: 'axis', 'aria-hidden': 'true' });
  const queues = el('div', { class: 'gantt' });
  root.append(
    el('section', { class: 'lead' }, headline, note),
    el('section', { 'aria-labelledby': 'timeline' },
      el('div', { class: 'title' }, el('h2', { id: 'timeline' }, 'Timeline by queue'), legend(), el('div', { class: 'tools' }, search, period)),
      el('div', { class: 'picture' }, el('div', { class: 'gantt-row', 'aria-hidden': 'true' }, el('div', {}), axis, el('div', { class: 'wide' })), queues)));

  const chosen = () => ({ window: app.params.get('window') ?? '', q: app.params.get('q') ?? '' });

  function inputs() {
    const { window, q } = chosen();
    period.value = window || String(24 * 3600);
    if (document.activeElement !== search) {
      search.value = q;
    }
  }

  function row(job) {
    return el('li', { class: 'gantt-row' },
      el('div', { class: 'gantt-name' },
        el('button', { class: 'link name', type: 'button', title: `${job.namespace}/${job.name}`, onclick: () => app.set({ job: `${job.namespace}/${job.workload}` }, { push: true }) }, job.name.replace(/^job\//, '')),
        el('span', { class: 'sub' }, [job.user, job.devices].filter(Boolean).join(' · ') || '–')),
      bar(job.phases, data.from, data.to),
      el('div', { class: 'wide' }, el('span', { class: job.state === 'Failed' ? 'bad' : null }, job.state), el('span', { class: 'sub' }, words(job.phases, data.to).short)));
  }

  function draw() {
    const period = windows.find(([seconds]) => seconds === data.window)?.[1];
    headline.replaceChildren(`${plural(data.running, 'job')} running`, el('span', { class: 'muted' }, `, ${count(data.starting)} starting, ${count(data.ended)} ended in ${period}`));
    note.hidden = !data.why;
    note.textContent = data.why ? `Jobs whose objects are gone are missing: ${data.why}` : '';
    axis.replaceChildren(...axisOf(data.from, data.to));
    queues.replaceChildren(...data.queues.map((q) => el('section', { 'aria-label': `Queue ${q.name}` },
      el('h3', {}, q.name, el('span', { class: 'muted' }, ` ${plural(q.total, 'job')}`)),
      el('ul', { class: 'plain-list' }, q.jobs.map(row)),
      q.total > q.jobs.length ? el('p', { class: 'small muted' }, `and ${count(q.total - q.jobs.length)} that ended earlier: search for them, or choose a shorter period`) : null)));
    if (data.queues.length === 0) {
      queues.replaceChildren(el('p', { class: 'nothing' }, chosen().q ? 'No job matches.' : `No job had quota in the last ${period}. Those that wait for it are in the view Queue.`));
    }
  }

  return {
    ...follow(chosen, inputs, async () => {
      data = await app.get('jobs', chosen());
      draw();
    }),
    redraw: () => data && draw(),
  };
}
