// Shows a recorded walk at one chosen time: picture, decision, labels and events.
import { card, make } from './cards.js';

const $ = (id) => document.getElementById(id);
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const walk = await (await fetch('walk.json')).json();
const frames = walk.frames, decisions = walk.decisions, end = walk.end;
let now = 0, playing = 0, begin = null;
const upTo = (list, t) => list.findLastIndex((one) => one.t <= t + 1e-6);
const current = () => decisions[upTo(decisions, now)];
const again = { run: 0, answers: [], byStamp: new Map() };
const stampOf = (d) => d && d.stamp_ns !== '0' ? d.stamp_ns : frames[Math.max(0, upTo(frames, now))].stamp_ns;

$('name').textContent = `${walk.name}: ${frames.length} pictures, ${decisions.length} decisions ${walk.notes.join('; ')}`;
$('time').max = end;
const keys = '1234567890';
$('actions').replaceChildren(...walk.actions.map((action, i) => {
  const button = make('button', `${keys[i] || ''} ${action}`);
  button.onclick = () => label(action);
  return button;
}));

async function post(where, what) {
  try {
    const reply = await fetch(where, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(what) });
    const told = await reply.json();
    return reply.ok ? told : { wrong: told.why };
  } catch { return { wrong: 'specnav console does not answer: has it ended?' }; }
}
async function label(action) {
  const told = await post('label', { stamp_ns: stampOf(current()), action });
  if (told.wrong) { $('answer').textContent = told.wrong; return; }
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
  $('decisions').replaceChildren(...(d ? [card({ ...d, frame: '' })] : [])); // its picture is the large one
  showAgain(d);
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
    if (e.what === 'motion_status') mark(e.t, 74, 20, style(/REACHED|MOVING|SETTLING|STOPPED|IDLE/.test(e.text) ? '--soft' : '--bad'), 3);
    else if (/stop|instruction/.test(e.what)) mark(e.t, 100, 20, style('--warn'), 3);
  }
  for (const one of again.answers) { // differences are also higher, because not everyone can see colours
    const differs = DIFFERENT.includes(one.differs), tall = one.differs === 'action' || one.differs === 'failed';
    mark(one.t, tall ? 50 : 55, tall ? 18 : 8, style(tall ? '--bad' : differs ? '--warn' : '--soft'), 5);
  }
  mark(now, 0, h, style('--ink'), 2);
  if (begin !== null) mark(begin, 0, h, style('--stop'), 2);
}
// -- decided again

const DIFFERENT = ['action', 'words', 'failed'];
const WORDS = { same: 'Decided again: the same words.', words: 'Decided again: the same action in other words.',
  action: 'Decided again: ANOTHER ACTION.', failed: 'Deciding again failed here.', unknown: 'Nothing was recorded for this picture.' };
function againAt(d) {
  return d ? again.byStamp.get(d.stamp_ns) : again.answers[upTo(again.answers, now)];
}
function showAgain(d) {
  const one = againAt(d);
  $('again-side').hidden = !again.answers.length;
  $('again-decision').replaceChildren(...(one ? [card(one.card)] : []));
  $('difference').textContent = one ? WORDS[one.differs] : again.answers.length ? 'This one was not decided again.' : '';
  $('difference').dataset.level = one && (one.differs === 'action' || one.differs === 'failed') ? 'bad' : '';
  if (one && d && DIFFERENT.includes(one.differs)) markFrom($('again-decision').querySelector('.tokens'), d.text);
}
function markFrom(shown, before) { // marks the words from the first difference on
  const words = shown.textContent;
  let same = 0;
  while (same < words.length && words[same] === before[same]) same += 1;
  while (same > 0 && words[same - 1] !== ' ') same -= 1;
  shown.replaceChildren(words.slice(0, same), make('mark', words.slice(same)));
}
function differing() { return again.answers.filter((one) => DIFFERENT.includes(one.differs)); }
function nextDifference() {
  const found = differing(), one = found.find((each) => each.t > now + 1e-6) || found[0];
  if (one) show(one.t);
}
function toldAgain(told) {
  if (told.wrong) { $('again-state').textContent = told.wrong; $('again-state').dataset.level = 'bad'; return; }
  if (told.run !== again.run) { // another replay began, perhaps from another page
    Object.assign(again, { run: told.run, answers: [], byStamp: new Map() });
    show(now);
    if (told.done > told.answers.length) { askAgain(); return; }
  }
  const fresh = told.answers;
  again.answers.push(...fresh);
  for (const one of fresh) again.byStamp.set(one.stamp_ns, one);
  const works = told.state === 'starting' || told.state === 'deciding', n = told.counts;
  $('again').disabled = works;
  $('cancel').hidden = $('progress').hidden = !works;
  if (told.state === 'starting') $('progress').removeAttribute('value');
  else Object.assign($('progress'), { max: Math.max(1, told.total), value: told.done });
  $('next').disabled = !differing().length;
  const found = `${told.done} of ${told.total} decided again with ${told.method}: ${n.action} other actions, ${n.words} in other words, `
    + `${n.same} the same${n.failed ? `, ${n.failed} failed` : ''}${n.unknown ? `, ${n.unknown} without a recorded decision` : ''}.`;
  $('again-state').textContent = { none: '', starting: `${told.method}: models are being loaded …`, failed: `It failed: ${told.why}`,
    cancelled: `Cancelled. ${found}` }[told.state] ?? found;
  $('again-state').dataset.level = told.state === 'failed' ? 'bad' : '';
  if (told.method && works) $('method').value = told.method;
  if (fresh.length) show(now);
  if (works) setTimeout(askAgain, 500);
}
async function askAgain() {
  try {
    const reply = await fetch(`again?since=${again.answers.length}`);
    toldAgain(await reply.json());
  } catch { toldAgain({ wrong: 'specnav console does not answer: has it ended?' }); }
}
$('method').replaceChildren(...walk.methods.map((name) => new Option(name)));
$('method').value = 'fsd';
$('again').onclick = async () => toldAgain(await post('again', { method: $('method').value }));
$('cancel').onclick = () => post('again', { cancel: true });
$('next').onclick = nextDifference;
askAgain();

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
const save = (kind) => { location.href = `clip.${kind}?from=${Math.min(begin, now)}&to=${Math.max(begin, now)}`; };
$('from').onclick = () => { begin = now; $('to').disabled = $('to-gif').disabled = false; draw(); };
$('to').onclick = () => save('mp4');
$('to-gif').onclick = () => save('gif');
addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.matches('select')) return;
  const act = { ArrowLeft: () => step(-1), ArrowRight: () => step(1), ' ': play, u: () => label(''), d: nextDifference,
    y: () => { const d = current(); if (d && d.model_action) label(d.model_action); } }[event.key]
    || (keys.includes(event.key) && walk.actions[keys.indexOf(event.key)] && (() => label(walk.actions[keys.indexOf(event.key)])));
  if (!act) return;
  event.preventDefault();
  act();
}, true);
document.body.dataset.ready = '';
show(decisions.length ? decisions[0].t : 0);
