// Clusters: those that jobs are given to, and the jobs that run in them or were given to them.

import { el, once, table } from './dom.js';
import { at, count, plural } from './format.js';

export const title = 'Clusters';

export function mount(root, app) {
  let data = null;
  const headline = el('h1');
  const clusters = el('div', { class: 'picture' });
  const jobs = el('div', { class: 'picture' });
  const heading = el('h2', { id: 'elsewhere' });
  root.append(
    el('section', { class: 'lead' }, headline), clusters,
    el('section', { 'aria-labelledby': 'elsewhere' }, heading, jobs));

  function draw() {
    headline.textContent = plural(data.clusters.length, 'cluster');
    if (data.clusters.length === 0) {
      clusters.replaceChildren(el('p', { class: 'nothing' }, 'There is no MultiKueueCluster: jobs run in this cluster only.'));
    } else {
      clusters.replaceChildren(table(['Cluster', 'Connected', 'Running', 'Holds of the quota here', 'Launches, USD per hour', 'Given to it', 'Refused', 'Last refusal'], [2, 4, 5, 6],
        data.clusters.map((c) => [
          c.cluster, el('span', {}, c.active ? 'yes' : 'no', c.message ? el('span', { class: 'sub' }, c.message) : null),
          count(c.running), c.held.join(', ') || '–', c.usdPerHour ?? '–', count(c.nominated), count(c.refused),
          el('span', {}, c.last ?? '–', c.lastRefusal?.message ? el('span', { class: 'sub' }, c.lastRefusal.message) : null),
        ])));
    }
    heading.textContent = data.total > data.jobs.length ? `${count(data.jobs.length)} of ${plural(data.total, 'job')} there` : `${plural(data.total, 'job')} there`;
    jobs.replaceChildren(data.jobs.length === 0 ? el('p', { class: 'nothing' }, 'No job runs in another cluster.') :
      table(['Job', 'Cluster', 'State', 'Launches, USD per hour'], [3], data.jobs.map((j) => [
        el('span', {}, el('button', { class: 'link', type: 'button', onclick: () => app.set({ job: `${j.namespace}/${j.workload}` }, { push: true }) },
          j.name.replace(/^job\//, '')), el('span', { class: 'sub' }, j.namespace)),
        j.cluster, j.running ? `has run there since ${at(j.since)}` : 'was given to it, and does not run yet', j.usdPerHour ?? '–',
      ])));
  }

  return {
    refresh: once(async () => {
      data = await app.get('clusters');
      draw();
    }),
    redraw: () => data && draw(),
    changed: () => data && draw(),
  };
}
