// Racks: the domains of flavors with a Topology, what is free in each, and what runs there.

import { el, once } from './dom.js';
import { count, plural } from './format.js';

export const title = 'Racks';

// few racks of a flavor are drawn unless all are asked for.
const few = 240;
// most Workloads are named where the pointer is.
const most = 12;

export function mount(root, app) {
  let data = null;
  let chosen = null; // the rack whose details are shown, by flavor and name
  const whole = {}; // whether all racks of a flavor are drawn
  const headline = el('h1');
  const tools = el('div', { class: 'tools' });
  const flavors = el('div', { class: 'flavors' });
  const details = el('section', { 'aria-labelledby': 'rack', hidden: true });
  const search = el('input', {
    type: 'search', placeholder: 'Rack, job or namespace', 'aria-label': 'Search the racks', autocomplete: 'off', spellcheck: 'false',
    oninput: () => app.set({ q: search.value.trim() }),
  });
  const found = el('span', { class: 'found', role: 'status' });
  tools.append(found, search);
  root.append(
    el('section', { class: 'lead' }, el('div', { class: 'title' }, headline, tools), legend()),
    details, flavors);

  function legend() {
    return el('div', { class: 'key small muted' },
      el('span', {}, el('i', { class: 'swatch used', 'aria-hidden': 'true' }), 'used'),
      el('span', {}, el('i', { class: 'swatch free', 'aria-hidden': 'true' }), 'free'),
      el('span', {}, el('i', { class: 'swatch booked', 'aria-hidden': 'true' }), 'on nodes that take no pods'),
      el('span', {}, 'The longer a bar, the larger the rack.'));
  }

  const name = (r) => r.domain.join('/');
  const key = (r) => `${r.flavor} ${name(r)}`;

  function matches(r, q) {
    return [name(r), ...r.workloads.map((w) => `${w.namespace}/${w.name} ${w.workload}`)].some((text) => text.toLowerCase().includes(q));
  }

  function draw() {
    const q = (app.params.get('q') ?? '').toLowerCase();
    if (document.activeElement !== search) {
      search.value = app.params.get('q') ?? '';
    }
    const racks = data.racks.filter((r) => matches(r, q));
    headline.textContent = plural(data.racks.length, 'rack');
    found.textContent = q ? plural(racks.length, 'rack') : '';
    tools.hidden = data.racks.length === 0;
    if (data.racks.length === 0) {
      flavors.replaceChildren(el('p', { class: 'nothing' }, data.decides ?
        'No ResourceFlavor has a Topology with nodes that have the labels of all its levels.' : 'No map of racks: rights to read are missing.'));
    } else {
      const focused = document.activeElement.dataset.rack;
      const names = [...new Set(racks.map((r) => r.flavor))];
      flavors.replaceChildren(...names.map((flavor) => section(flavor, racks.filter((r) => r.flavor === flavor))));
      if (focused) {
        flavors.querySelector(`[data-rack="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
      }
    }
    drawDetails();
  }

  function section(flavor, racks) {
    const shown = whole[flavor] ? racks : racks.slice(0, few);
    const id = `flavor-${flavor}`;
    return el('section', { 'aria-labelledby': id },
      el('div', { class: 'title' }, el('h2', { id }, flavor), el('span', { class: 'small muted' }, `Topology ${racks[0].topology}, ${plural(racks.length, 'rack')}`)),
      el('div', { class: 'racks', role: 'list' }, shown.map((r) => el('div', { role: 'listitem' }, cell(r)))),
      racks.length > few ? el('button', { class: 'quiet', type: 'button', onclick: () => { whole[flavor] = !whole[flavor]; draw(); } },
        whole[flavor] ? 'Show fewer' : `${count(racks.length - few)} more are not shown: show all`) : null);
  }

  // cell is a rack; its first resource, a device if it has any, is its bar.
  function cell(r) {
    const of = r.resources[0];
    const nodes = r.open < r.nodes ? `${r.open} of ${plural(r.nodes, 'node')} open` : plural(r.nodes, 'node');
    const label = of ? `${name(r)}: ${of.free} of ${of.capacity} ${of.resource} free, ${nodes}` : `${name(r)}: ${nodes}`;
    const running = r.workloads.slice(0, most).map((w) => `${w.namespace}/${w.name}: ${plural(w.pods, 'pod')}`);
    if (r.workloads.length > most) {
      running.push(`and ${count(r.workloads.length - most)} more`);
    }
    return el('button', {
      class: 'rack', type: 'button', 'data-rack': key(r), 'aria-pressed': String(key(r) === chosen), 'aria-label': label, title: [label, ...running].join('\n'),
      onclick: () => { chosen = key(r) === chosen ? null : key(r); draw(); },
    },
    el('span', { class: 'rack-title' }, el('span', { class: 'name' }, name(r)), el('span', { class: 'sub' }, of ? `${of.free} free` : nodes)),
    of ? bar(of) : null);
  }

  function bar(of) {
    const part = (share) => `${share / 10}%`;
    return el('span', { class: 'track', 'aria-hidden': 'true', style: { width: `${Math.max(4, of.size / 10)}%` } },
      el('i', { class: 'used', style: { width: part(of.usedShare) } }),
      el('i', { class: 'free', style: { width: part(of.freeShare) } }),
      el('i', { class: 'booked', style: { 'flex-grow': 1 } }));
  }

  // drawDetails of the chosen rack.
  function drawDetails() {
    const r = data.racks.find((x) => key(x) === chosen);
    details.hidden = !r;
    if (!r) {
      return;
    }
    details.replaceChildren(
      el('div', { class: 'title' }, el('h2', { id: 'rack' }, `${name(r)}, flavor ${r.flavor}`),
        el('span', { class: 'small muted' }, `${plural(r.nodes, 'node')}, ${count(r.open)} take pods`),
        el('div', { class: 'tools' }, el('button', { class: 'quiet', type: 'button', onclick: () => { chosen = null; draw(); } }, 'Close'))),
      el('div', { class: 'columns' },
        el('div', { class: 'picture' }, table(['Resource', 'Free', 'Used', 'Capacity'], r.resources.map((x) => [x.resource, x.free, x.used, x.capacity]))),
        el('div', { class: 'picture' }, r.workloads.length === 0 ? el('p', { class: 'nothing' }, 'No workload runs here.') :
          table(['Job', 'Pods'], r.workloads.map((w) => [
            el('span', {}, el('button', { class: 'link', type: 'button', onclick: () => app.set({ job: `${w.namespace}/${w.workload}` }, { push: true }) },
              w.name.replace(/^job\//, '')), el('span', { class: 'sub' }, w.namespace)), count(w.pods)])),
        r.otherPods > 0 ? el('p', { class: 'small muted' }, `${plural(r.otherPods, 'pod')} of no workload`) : null)));
  }

  function table(head, rows) {
    return el('div', { class: 'scroll' }, el('table', { class: 'plain' },
      el('thead', {}, el('tr', {}, head.map((h, i) => el('th', { scope: 'col', class: i > 0 ? 'number' : null }, h)))),
      el('tbody', {}, rows.map((cells) => el('tr', {}, cells.map((c, i) => (i > 0 ? el('td', { class: 'number' }, c) : el('th', { scope: 'row' }, c))))))));
  }

  return {
    refresh: once(async () => {
      data = await app.get('racks');
      draw();
    }),
    redraw: () => data && draw(),
    changed: () => data && draw(),
  };
}
