// A walk looked at again: one time, and everything that is about it.
import { card, make } from './cards.js';

const $ = (id) => document.getElementById(id);
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const walk = await (await fetch('walk.json')).json();
const frames = walk.frames, decisions = walk.decisions, end = frames[frames.length - 1].t;
let now = 0, playing = 0, begin = null;
const upTo = (list, t) => list.findLastIndex((one) => one.t <= t + 1e-6);
const current = () => decisions[upTo(decisions, now)];
const stampOf = (d) => d && d.stamp_ns !== '0' ? d.stamp_ns : frames[Math.max(0, upTo(frames, now))].stamp_ns;

$('name').textContent = `${walk.name}: ${frames.length} pictures, ${decisions.length} decisions ${walk.notes.join('; ')}`;
$('time').max = end;
const keys = '1234567890';
$('actions').replaceChildren(...walk.actions.map((action, i) => {
  const button = make('button', `${keys[i] || ''} ${action}`);
  button.onclick = () => label(action);
  return button;
}));

async function label(action) {
  const stamp_ns = stampOf(current());
  const reply = await fetch('label', { method: 'POST', headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ stamp_ns, action }) });
  const told = await reply.json();
  if (!reply.ok) { $('answer').textContent = told.why; return; }
  walk.labels = told;
  $('answer').textContent = action ? `labelled: ${action}; ${Object.keys(told).length} in all` : 'no label';
  show(now);
}
function show(t) {
  now = Math.max(0, Math.min(end, t));
  const frame = frames[Math.max(0, upTo(frames, now))], d = current();
  const src = `frames/${frame.number}`;
  if ($('picture').getAttribute('src') !== src) $('picture').src = src;
  $('time').value = now;
  $('clock').textContent = `${now.toFixed(2)} s`;
  $('decisions').replaceChildren(...(d ? [card(d)] : []));
  $('count').textContent = d ? `${upTo(decisions, now) + 1} of ${decisions.length}` : '';
  const said = walk.labels[stampOf(d)];
  [...$('actions').children].forEach((b, i) => b.setAttribute('aria-pressed', String(walk.actions[i] === said)));
  const at = upTo(walk.events, now);
  $('events').replaceChildren(...walk.events.slice(Math.max(0, at - 7), at + 4).map((e) => {
    const item = make('li', `${e.t.toFixed(2)} s  ${e.what}: ${e.text}`);
    if (e === walk.events[at]) item.dataset.now = '';
    return item;
  }));
  draw();
}
function draw() {
  const canvas = $('line'), c = canvas.getContext('2d'), w = canvas.width, h = canvas.height;
  const x = (t) => 4 + (w - 8) * t / Math.max(end, 1e-9);
  c.clearRect(0, 0, w, h);
  const mark = (t, top, height, colour, width = 2) => { c.fillStyle = colour; c.fillRect(x(t), top, width, height); };
  frames.forEach((f) => mark(f.t, 0, 14, style('--line'), 1));
  for (const d of decisions) {
    const said = walk.labels[d.stamp_ns];
    const colour = !said ? '--accent' : said === d.model_action ? '--good' : '--bad';
    const width = Math.max(4, x(d.total_ms / 1000) - x(0));
    c.fillStyle = style(colour);
    c.fillRect(x(Math.max(0, d.t - d.total_ms / 1000)), 24, width, 24);
  }
  for (const e of walk.events) {
    if (e.what === 'motion_status') mark(e.t, 56, 20, style(/REACHED|MOVING|SETTLING|STOPPED|IDLE/.test(e.text) ? '--soft' : '--bad'), 3);
    else if (/stop|instruction/.test(e.what)) mark(e.t, 80, 20, style('--warn'), 3);
  }
  mark(now, 0, h, style('--ink'), 2);
  if (begin !== null) mark(begin, 0, h, style('--stop'), 2);
}
function step(by) {
  const i = upTo(decisions, now) + by;
  if (decisions[i]) show(decisions[i].t);
}
function play() {
  playing = playing ? 0 : performance.now();
  $('play').textContent = playing ? 'Pause' : 'Play';
  const start = now - 0;
  const tick = () => {
    if (!playing) return;
    show(start + (performance.now() - playing) / 1000);
    if (now >= end) { play(); return; }
    requestAnimationFrame(tick);
  };
  tick();
}
$('time').oninput = () => show(Number($('time').value));
$('line').onclick = (e) => show(end * (e.offsetX / $('line').clientWidth));
$('play').onclick = play;
$('before').onclick = () => step(-1);
$('after').onclick = () => step(1);
$('from').onclick = () => { begin = now; $('to').disabled = false; draw(); };
$('to').onclick = () => { location.href = `clip.gif?from=${Math.min(begin, now)}&to=${Math.max(begin, now)}`; };
addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const act = { ArrowLeft: () => step(-1), ArrowRight: () => step(1), ' ': play, u: () => label(''),
    y: () => { const d = current(); if (d && d.model_action) label(d.model_action); } }[event.key]
    || (keys.includes(event.key) && walk.actions[keys.indexOf(event.key)] && (() => label(walk.actions[keys.indexOf(event.key)])));
  if (!act) return;
  event.preventDefault();
  act();
}, true);
document.body.dataset.ready = '';
show(decisions.length ? decisions[0].t : 0);
