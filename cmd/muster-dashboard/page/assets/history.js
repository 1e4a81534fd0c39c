// History: the jobs that have ended, and what each queue has cost.

import { el, once, table } from './dom.js';
import { count, plural, span } from './format.js';
import { spendOverTime } from './spend.js';

export const title = 'History';

const dated = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });

export function mount(root, app) {
  let data = null;
  const headline = el('h1');
  const note = el('p', { class: 'sub' });
  const queues = el('div', { class: 'picture' });
  const spend = spendOverTime(app);
  const jobs = el('div', { class: 'picture' });
  root.append(
    el('section', { class: 'lead' }, headline, note),
    spend.node,
    el('section', { 'aria-labelledby': 'ended' }, el('h2', { id: 'ended' }, 'Jobs that have ended'), jobs),
    el('section', { 'aria-labelledby': 'by-queue' }, el('h2', { id: 'by-queue' }, 'By queue'), queues));

  function draw() {
    headline.textContent = `${plural(data.total, 'job')} ended in the last five weeks`;
    note.textContent = [
      data.total > data.jobs.length ? `The last ${count(data.jobs.length)} are listed.` : '',
      data.leftOut ? `${count(data.leftOut)} that ended earlier were left out for want of room.` : '',
    ].join(' ').trim();
    jobs.replaceChildren(data.jobs.length === 0
      ? el('p', { class: 'nothing' }, data.why || 'No job has ended yet. A job is listed here a minute after its end, also when its objects are deleted.')
      : table(['Job', 'Outcome', 'Queue', 'Waited', 'Ran', 'USD', 'Ended'], [3, 4, 5], data.jobs.map((j) => [
        el('span', {}, el('button', { class: 'link', type: 'button', onclick: () => app.set({ job: `${j.namespace}/${j.workload}` }, { push: true }) }, j.name.replace(/^job\//, '')),
          el('span', { class: 'sub' }, [j.namespace, j.user].filter(Boolean).join(' · '))),
        el('span', { class: j.outcome === 'Failed' ? 'bad' : null }, j.outcome, j.why ? el('span', { class: 'sub' }, j.why) : null),
        j.queue, span(j.waitedSeconds), span(j.ranSeconds), j.usd, dated.format(Date.parse(j.ended)),
      ])));
    queues.replaceChildren(data.queues.length === 0 ? el('p', { class: 'nothing' }, 'Nothing has been spent.') :
      table(['Queue', 'Jobs', 'Not finished', 'Waited on average', 'USD', 'Of it unused'], [1, 2, 3, 4, 5], data.queues.map((q) => [
        q.name || '(none)', count(q.jobs), count(q.failed), q.jobs ? span(q.meanWaitedSeconds) : '–', q.usd, q.unusedUSD,
      ])));
  }

  async function ended() {
    data = await app.get('history');
    draw();
  }

  return {
    refresh: once(() => Promise.all([spend.refresh(), ended()])),
    redraw: () => data && draw(),
    changed: () => spend.changed(),
  };
}
