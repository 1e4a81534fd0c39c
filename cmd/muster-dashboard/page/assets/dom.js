// What is shown comes from a cluster in which many people name things, so nothing of
// it is ever parsed as HTML: nodes are made here, and text stays text.

const svgSpace = 'http://www.w3.org/2000/svg';

// el makes an element. Properties that begin with "on" are listeners; null and false
// leave out a property or a child.
export function el(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(svgSpace, tag), properties, children);
}

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) {
      continue;
    }
    if (name.startsWith('on')) {
      node.addEventListener(name.slice(2), value);
    } else if (name === 'style') {
      // Never as an attribute: the page's policy forbids that.
      for (const [key, v] of Object.entries(value)) {
        node.style.setProperty(key, v);
      }
    } else {
      node.setAttribute(name, value === true ? '' : value);
    }
  }
  node.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

// once runs f at most once at a time, and once more if it was asked for meanwhile.
export function once(f) {
  let running = false;
  let again = false;
  return async function run() {
    if (running) {
      again = true;
      return;
    }
    running = true;
    try {
      do {
        again = false;
        await f();
      } while (again);
    } finally {
      running = false;
    }
  };
}

// follow loads data whenever what is chosen changes, which is in the address, and has the inputs show it.
export function follow(chosen, inputs, load) {
  let shown = JSON.stringify(chosen());
  const refresh = once(load);
  inputs();
  return {
    refresh,
    changed() {
      const now = JSON.stringify(chosen());
      if (now !== shown) {
        shown = now;
        inputs();
        refresh().catch(() => {});
      }
    },
  };
}

// table has a heading for each row, and the columns of numbers aligned as such.
export function table(head, numbers, rows) {
  const kind = (i) => (numbers.includes(i) ? 'number' : null);
  return el('div', { class: 'scroll' }, el('table', { class: 'plain' },
    el('thead', {}, el('tr', {}, head.map((h, i) => el('th', { scope: 'col', class: kind(i) }, h)))),
    el('tbody', {}, rows.map((cells) => el('tr', {}, cells.map((c, i) => (i > 0 ? el('td', { class: kind(i) }, c) : el('th', { scope: 'row' }, c))))))));
}
