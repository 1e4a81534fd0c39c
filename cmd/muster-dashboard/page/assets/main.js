// The frame: which view is shown, what the server says of itself, and the theme. A view
// is a module with a title and a function mount(root, app), which returns
//
//	refresh   gets what is new and shows it; called when the server has decided again
//	redraw    draws again what depends on the theme or the width
//	changed   the address has changed within the view
//	leave     is called before it goes; optional

import { el } from './dom.js';
import { exact, at } from './format.js';
import { explain, closeExplain, refreshExplain } from './explain.js';
import * as queue from './queue.js';
import * as jobs from './jobs.js';
import * as obtainability from './obtainability.js';
import * as racks from './racks.js';
import * as clusters from './clusters.js';
import * as cost from './cost.js';
import * as past from './history.js';

const views = { queue, jobs, obtainability, racks, clusters, cost, history: past };
const main = document.getElementById('main');

// silence, in milliseconds, after which the connection counts as lost: the server says
// something every 10 seconds.
const silence = 25_000;

let current = null; // the view that is shown: { name, view }
let heartbeat = null; // what the server said last
let heard = 0; // when that was
let lost = 0; // since when nothing is heard

export const app = {
  get params() {
    return new URLSearchParams(location.search);
  },

  // set changes parameters of the address; empty ones go.
  set(changes, { push = false } = {}) {
    const params = app.params;
    for (const [name, value] of Object.entries(changes)) {
      if (value) {
        params.set(name, value);
      } else {
        params.delete(name);
      }
    }
    const text = params.toString();
    const address = location.pathname + (text ? `?${text}` : '');
    if (address === location.pathname + location.search) {
      return;
    }
    history[push ? 'pushState' : 'replaceState'](null, '', address);
    follow();
  },

  // get asks the server. An error has a readable message.
  async get(path, params = {}) {
    const query = new URLSearchParams(Object.entries(params).filter(([, v]) => v !== '' && v !== undefined));
    const response = await fetch(`/api/${path}?${query}`);
    if (!response.ok) {
      throw new Error((await response.text()).trim() || response.statusText);
    }
    return response.json();
  },

  // announce passes a text to screen readers.
  announce(text) {
    document.getElementById('live').textContent = text;
  },

  get heartbeat() {
    return heartbeat;
  },
};

// follow shows what the address says.
function follow() {
  const name = location.pathname.slice(1) in views ? location.pathname.slice(1) : 'queue';
  if (current?.name !== name) {
    current?.view.leave?.();
    main.replaceChildren();
    document.title = `${views[name].title} – Muster`;
    for (const link of document.querySelectorAll('nav [data-view]')) {
      if (link.dataset.view === name) {
        link.setAttribute('aria-current', 'page');
      } else {
        link.removeAttribute('aria-current');
      }
    }
    delete document.documentElement.dataset.shown;
    current = { name, view: views[name].mount(main, app) };
    refresh();
  } else {
    current.view.changed();
  }
  const job = app.params.get('job');
  if (job) {
    explain(app, job);
  } else {
    closeExplain();
  }
}

// refresh has the view get what is new. data-shown says which view shows its data, and the
// mark since when.
async function refresh() {
  const { name, view } = current;
  try {
    await view.refresh();
    if (current.view === view && document.documentElement.dataset.shown !== name) {
      document.documentElement.dataset.shown = name;
      performance.mark('shown');
    }
  } catch (error) {
    // The next heartbeat brings another try; meanwhile the page says that it is lost.
    if (!lost && heard) {
      notice('trouble', 'bad', error.message);
    }
    return;
  }
  notice('trouble');
}

// notice shows or hides a sentence above the view.
function notice(id, kind, ...content) {
  const notices = document.getElementById('notices');
  const old = notices.querySelector(`[data-notice="${id}"]`);
  if (content.length === 0) {
    old?.remove();
    return;
  }
  const now = el('div', { class: `notice ${kind}`, role: 'alert', 'data-notice': id }, ...content);
  if (old?.textContent === now.textContent) {
    return; // so that it is not read out again
  }
  old?.remove();
  notices.append(now);
}

let source = null; // of heartbeats

// listen to the server while the page is visible: a browser keeps few streams to one server,
// beyond which further tabs would hang, and the server decides only while a page listens.
function listen() {
  source?.close();
  if (document.hidden) {
    return;
  }
  source = new EventSource('/api/events');
  source.addEventListener('heartbeat', (event) => {
    const before = heartbeat;
    heartbeat = JSON.parse(event.data);
    heard = Date.now();
    lost = 0;
    state();
    if (before?.version !== heartbeat.version) {
      refresh();
      refreshExplain();
    }
  });
  source.addEventListener('error', () => {
    lost ||= Date.now();
    state();
    if (source.readyState === EventSource.CLOSED) {
      // The browser has given up: an answer that is no stream, from a proxy perhaps.
      setTimeout(listen, 3000);
    }
  });
}
document.addEventListener('visibilitychange', () => {
  heard = Date.now(); // nothing could be heard while it was hidden
  listen();
});

// state shows how fresh the page is, and what it cannot read.
function state() {
  if (heard && !lost && !document.hidden && Date.now() - heard > silence) {
    lost = heard;
  }
  const node = document.getElementById('heartbeat');
  const stale = lost || heartbeat?.staleSince;
  let text = 'Connecting…';
  if (lost) {
    text = `Stale since ${exact(lost)}`;
  } else if (heartbeat?.staleSince) {
    text = `Stale since ${exact(heartbeat.staleSince)}`;
  } else if (heartbeat?.loading) {
    text = 'Reading the cluster…';
  } else if (heartbeat) {
    text = 'Live';
  }
  node.dataset.state = stale ? 'stale' : heartbeat && !heartbeat.loading ? 'live' : 'wait';
  if (node.textContent !== text) {
    node.textContent = text;
  }
  node.title = heartbeat?.decidedAt ? `Decided at ${exact(heartbeat.decidedAt)}` : '';

  document.querySelector('nav [data-view=clusters]').hidden = !heartbeat?.clusters && current?.name !== 'clusters';
  if (lost) {
    notice('stale', 'warn', el('strong', {}, `Stale since ${at(lost)}.`), ' The page’s own server does not answer. Retrying.');
  } else if (heartbeat?.staleSince) {
    notice('stale', 'warn', el('strong', {}, `Stale since ${at(heartbeat.staleSince)}.`), ` ${heartbeat.staleWhy}`);
  } else {
    notice('stale');
  }
  if (heartbeat?.missing?.length) {
    notice('missing', 'warn', el('strong', {}, 'This page lacks rights.'), ' It shows what Muster recorded on the objects. Missing rights and their effect:',
      el('ul', {}, heartbeat.missing.map((m) => el('li', {}, el('code', {}, m.rights.join(', ')), ` — ${m.purpose}`))),
      el('p', {}, 'Grant the rights with ', el('code', {}, heartbeat.remedy)));
  } else {
    notice('missing');
  }
  if (heartbeat?.error) {
    notice('error', 'bad', heartbeat.error);
  } else {
    notice('error');
  }
}

// Themes in the order in which the button goes through them.
const themes = ['auto', 'light', 'dark'];

function theme() {
  const button = document.getElementById('theme');
  const root = document.documentElement;
  const show = () => {
    const chosen = root.dataset.theme ?? 'auto';
    const glyph = { auto: '◐', light: '☀', dark: '☾' }[chosen];
    button.replaceChildren(el('span', { 'aria-hidden': 'true' }, glyph), el('span', { class: 'hidden' }, `Theme: ${chosen}`));
    button.title = `Theme: ${chosen}`;
  };
  button.addEventListener('click', () => {
    const next = themes[(themes.indexOf(root.dataset.theme ?? 'auto') + 1) % themes.length];
    if (next === 'auto') {
      delete root.dataset.theme;
      localStorage.removeItem('theme');
    } else {
      root.dataset.theme = next;
      localStorage.setItem('theme', next);
    }
    show();
    app.announce(`Theme: ${next}`);
    current.view.redraw();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => current.view.redraw());
  show();
}

// Links between views do not reload the page. Arrow keys move between them.
document.addEventListener('click', (event) => {
  const link = event.target.closest('a[data-view]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) {
    return;
  }
  event.preventDefault();
  history.pushState(null, '', link.getAttribute('href'));
  follow();
  scrollTo(0, 0);
});
document.querySelector('nav').addEventListener('keydown', (event) => {
  const links = [...document.querySelectorAll('nav [data-view]:not([hidden])')];
  const i = links.indexOf(document.activeElement);
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step && i >= 0) {
    event.preventDefault();
    links[(i + step + links.length) % links.length].focus();
  }
});
addEventListener('popstate', follow);

let width = innerWidth;
addEventListener('resize', () => {
  if (innerWidth !== width) {
    width = innerWidth;
    current.view.redraw();
  }
});

theme();
follow();
listen();
setInterval(state, 1000);
