// Amounts and times as text.

const minute = 60;
const hour = 60 * minute;
const day = 24 * hour;

// span is a length of time, given in seconds, in two units at most.
export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 2 * minute) {
    return `${s}s`;
  }
  if (s < hour) {
    return `${Math.round(s / minute)}m`;
  }
  if (s < day) {
    return pair(s, hour, 'h', minute, 'm');
  }
  return pair(s, day, 'd', hour, 'h');
}

function pair(s, large, largeName, small, smallName) {
  const whole = Math.floor(s / large);
  const rest = Math.floor((s % large) / small);
  return rest === 0 || whole >= 10 ? `${whole}${largeName}` : `${whole}${largeName} ${rest}${smallName}`;
}

const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
const seconds = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
const dated = new Intl.DateTimeFormat(undefined, { weekday: 'short', hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });

const calendar = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short' });

// at is a time, in milliseconds, with the day where it is not today's, or the date where that is more than six days away.
export function at(ms) {
  const t = new Date(ms);
  if (Math.abs(t - Date.now()) > 6 * day * 1000) {
    return calendar.format(t);
  }
  return t.toDateString() === new Date().toDateString() ? clock.format(t) : dated.format(t);
}

export function exact(ms) {
  return seconds.format(new Date(ms));
}

const cents = new Intl.NumberFormat('en-US', { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat('en-US', { maximumFractionDigits: 1 });

// usd leaves out the cents of large amounts.
export function usd(amount) {
  return `$${Math.abs(amount) >= 1000 ? whole.format(amount) : cents.format(amount)}`;
}

export function count(n) {
  return whole.format(n);
}

// some is a number with at most one digit behind the point.
export function some(n) {
  return tenths.format(n);
}

export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}
