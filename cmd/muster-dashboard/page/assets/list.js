// A table of any length of which only the visible rows exist. The page itself scrolls, as
// usual on a phone, and the visible rows are loaded in blocks.

import { el } from './dom.js';

// block is how many rows are asked for at once.
const block = 60;
// beyond is how many rows exist above and below those in sight, so that scrolling does
// not show gaps.
const beyond = 8;

// virtualList makes one. load(from, count) promises { total, rows }; draw(row, index)
// returns the cells of a row; open(row) is what a click does. Its columns have a title
// and a class that gives them their width.
export function virtualList({ label, columns, load, draw, open, empty }) {
  const body = el('div', { class: 'rows', role: 'rowgroup' });
  const nothing = el('p', { class: 'nothing', hidden: true }, empty);
  const grid = el('div', { class: 'list', role: 'grid', 'aria-label': label, 'aria-readonly': 'true' },
    el('div', { class: 'head', role: 'rowgroup' },
      el('div', { class: 'row', role: 'row', 'aria-rowindex': 1 },
        columns.map((c) => el('div', { class: `cell ${c.class}`, role: 'columnheader' }, c.title)))),
    body, nothing);
  let blocks = new Map(); // of rows, by the number of the block
  let total = 0;
  let focused = 0; // index of the row that the Tab key reaches
  let asked = new Set();
  let generation = 0; // what was asked for before a reset is thrown away
  const shown = new Map(); // nodes by index

  const height = () => parseFloat(getComputedStyle(grid).getPropertyValue('--row')) || 56;
  const at = (i) => blocks.get(Math.floor(i / block))?.[i % block];

  function inSight() {
    const h = height();
    const top = body.getBoundingClientRect().top;
    const from = Math.max(0, Math.floor(-top / h) - beyond);
    return [from, Math.min(total, Math.ceil((innerHeight - top) / h) + beyond)];
  }

  async function fetchBlock(n, into, of) {
    asked.add(n);
    const answer = await load(n * block, block);
    if (of !== generation) {
      return;
    }
    total = answer.total;
    into.set(n, answer.rows);
  }

  // fill asks for the blocks that are in sight and missing.
  async function fill() {
    const [from, to] = inSight();
    const wanted = [];
    for (let n = Math.floor(from / block); n * block < to; n++) {
      if (!blocks.has(n) && !asked.has(n)) {
        wanted.push(fetchBlock(n, blocks, generation));
      }
    }
    if (wanted.length > 0) {
      await Promise.all(wanted);
      render();
    }
  }

  function render() {
    const h = height();
    body.style.height = `${total * h}px`;
    grid.setAttribute('aria-rowcount', total + 1);
    nothing.hidden = total > 0;
    focused = Math.max(0, Math.min(focused, total - 1));
    const [from, to] = inSight();
    for (const [i, node] of shown) {
      if ((i < from || i >= to) && !node.contains(document.activeElement)) {
        node.remove();
        shown.delete(i);
      }
    }
    for (let i = from; i < to; i++) {
      const row = at(i);
      let node = shown.get(i);
      if (node && node.row === row) {
        node.style.top = `${i * h}px`;
        node.tabIndex = i === focused ? 0 : -1;
        continue;
      }
      if (!node) {
        node = el('div', { class: 'row', role: 'row', 'aria-rowindex': i + 2 });
        shown.set(i, node);
        body.append(node);
      }
      node.row = row;
      node.index = i;
      node.tabIndex = i === focused ? 0 : -1;
      node.style.top = `${i * h}px`;
      node.replaceChildren(...(row ? draw(row, i) : [el('div', { class: 'cell waiting', role: 'gridcell' }, '…')])
        .map((cell) => { cell.setAttribute('role', 'gridcell'); return cell; }));
    }
  }

  function focus(i) {
    focused = Math.max(0, Math.min(i, total - 1));
    const h = height();
    const top = body.getBoundingClientRect().top + focused * h;
    const cover = grid.querySelector('.head').getBoundingClientRect().bottom;
    if (top < Math.max(cover, 0)) {
      scrollBy({ top: top - cover, behavior: 'instant' });
    } else if (top + h > innerHeight) {
      scrollBy({ top: top + h - innerHeight + 8, behavior: 'instant' });
    }
    render();
    shown.get(focused)?.focus({ preventScroll: true });
    fill();
  }

  const target = (event) => event.target.closest('.rows > .row');
  body.addEventListener('click', (event) => {
    const node = target(event);
    if (node?.row && getSelection().isCollapsed) {
      focused = node.index;
      render();
      open(node.row);
    }
  });
  body.addEventListener('keydown', (event) => {
    const node = target(event);
    if (!node) {
      return;
    }
    const page = Math.max(1, Math.floor(innerHeight / height()) - 4);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -total, End: total };
    if (event.key in steps) {
      event.preventDefault();
      focus(node.index + steps[event.key]);
    } else if ((event.key === 'Enter' || event.key === ' ') && node.row) {
      event.preventDefault();
      open(node.row);
    }
  });

  let frame = 0;
  const scrolled = () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      render();
      fill();
    });
  };
  addEventListener('scroll', scrolled, { passive: true });

  return {
    node: grid,
    render,

    // refresh reloads the visible rows, and shows the old ones meanwhile.
    async refresh() {
      const of = ++generation;
      const [from, to] = inSight();
      const fresh = new Map();
      asked = new Set();
      const first = Math.floor(from / block);
      const wanted = [fetchBlock(first, fresh, of)];
      for (let n = first + 1; n * block < to; n++) {
        wanted.push(fetchBlock(n, fresh, of));
      }
      try {
        await Promise.all(wanted);
      } catch (error) {
        asked = new Set();
        throw error;
      }
      if (of !== generation) {
        return;
      }
      blocks = fresh;
      render();
      await fill();
    },

    // reset begins at the top, for another filter.
    reset() {
      focused = 0;
      const top = grid.getBoundingClientRect().top;
      if (top < 0) {
        scrollBy({ top: top - 120, behavior: 'instant' });
      }
      return this.refresh();
    },

    leave() {
      removeEventListener('scroll', scrolled);
    },
  };
}
