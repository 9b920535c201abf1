// The page: shows the console's messages and sends the operator's commands. It contains no decisions.
import { card, make } from './cards.js';
import { blackbox, fetchFile, fleet, offers, showFiles, simulator } from './extras.js';
import { drawCamera, drawMap } from './map.js';

const $ = (id) => document.getElementById(id);
const worker = new Worker('link.js');
const send = (message) => worker.postMessage({ send: message });
let line = 'lost', state = {}, map = { path: [], places: [] }, me = {}, stopId = 0, pending = 0, stood = false, said = '', frames = 0;
const show = (element, words) => { if (element.textContent !== words) element.textContent = words; };
const level = (element, words, how) => { show(element, words); element.dataset.level = how; };

// -- the connection

const given = new URLSearchParams(location.hash.slice(1)).get('token');
if (given) {
  sessionStorage.setItem('token', given);
  history.replaceState(null, '', location.pathname); // so that a copied address does not contain the token
}
worker.postMessage({ open: {
  url: `${location.protocol.replace('http', 'ws')}//${location.host}/socket`,
  hello: { token: sessionStorage.getItem('token') || '', name: localStorage.getItem('name') || '',
    robot: sessionStorage.getItem('robot') },
} });
const alive = () => worker.postMessage({ alive: true, hidden: document.hidden });
setInterval(alive, 60);
document.addEventListener('visibilitychange', alive);
alive();

worker.onmessage = ({ data }) => {
  if (data.picture) { drawPicture(data); return; }
  if (data.link) { lineChanged(data); return; }
  if ('posted' in data) {
    level($('stands'), data.posted ? 'STOP sent without the socket; unknown whether the robot stands' : 'STOP COULD NOT BE SENT', 'bad');
    return;
  }
  const m = data.message, act = {
    hello: () => {
      me = m;
      document.body.dataset.role = m.role;
      offers(m.templates, sayIt);
      simulator(m.faults, send);
    },
    fleet: () => fleet(m.robots, state.robot, look),
    thought: () => thinking(m),
    files: () => showFiles(m, send),
    file: () => fetchFile(m),
    state: () => showState(m),
    map: () => { map = m; showMap(); },
    decisions: () => { showDecisions(m); $('now').hidden = true; },
    log: () => log(m.level, m.words, m.at),
    no: () => answer(m.why, 'bad'),
    yes: () => answer(m.why, 'good'),
    steps: () => askSteps(m),
    stands: () => stands(m),
    health: () => showHealth(m.rows),
    params: () => showParams(m.rows),
  }[m.t];
  if (act) act();
};
function lineChanged({ link, why }) {
  line = link;
  for (const id of ['take', 'go', 'cancel']) $(id).disabled = link !== 'up';
  const banner = $('banner');
  banner.hidden = link === 'up';
  if (link === 'up') return;
  show(banner, why ? `Not admitted: ${why}. Open the page with #token=… appended to its address.`
    : 'CONNECTION LOST: this page cannot stop the robot. Use its remote control or the button on it.');
  level($('link'), why ? 'not admitted' : 'connection lost', 'bad');
  level($('stands'), 'unknown whether the robot stands', 'bad');
}

// -- display

function drawPicture({ picture, at }) {
  requestAnimationFrame(() => {
    drawCamera($('camera'), picture, state);
    picture.close();
    frames += 1;
    $('camera').dataset.frames = frames;
    $('camera').dataset.delay = Math.round(Date.now() - 1000 * at);
    $('nocamera').hidden = true;
    send({ t: 'drawn' });
  });
}
const STATES = { MOVING: 'Moving', SETTLING: 'Coming to a stand', REACHED: 'Looking', STOPPED: 'Standing', IDLE: 'Standing',
  BLOCKED: 'Blocked by an obstacle', COLLISION_AHEAD: 'Obstacle ahead', ESTOPPED: 'EMERGENCY STOP', GEOFENCE: 'At the geofence',
  LINK_LOST: 'The link is lost', STALE_CAMERA: 'No camera', STALE_ODOM: 'No odometry', SUPERVISOR_LOST: 'The navigator is silent',
  NOT_READY: 'The robot is not ready', UNCOMMANDED_MOTION: 'Moved without a command', EXPIRED: 'Looking',
  NO_RESPONSE: 'The base does not respond', WRONG_RESPONSE: 'The base does not move as commanded',
  STALE_SENSOR: 'The collision sensor is silent', REFUSED: 'Standing: the motion was refused' };
function showState(m) {
  state = m;
  if (m.state) sessionStorage.setItem('robot', m.robot); // a page that is loaded again shows the same one
  const robots = m.robots.length ? m.robots : [''], select = $('robot');
  if (select.dataset.names !== robots.join()) {
    select.dataset.names = robots.join();
    select.replaceChildren(...robots.map((name) => new Option(name || 'the robot', name)));
  }
  select.value = m.robot;
  select.parentElement.hidden = robots.length < 2 && !robots[0] && !m.robot;
  const silent = robots.includes(m.robot) ? 'no robot heard' : `robot ${m.robot || 'without a name'} is not heard: choose one`;
  level($('link'), m.state ? 'connected' : silent, m.state ? 'good' : 'warn');
  const viewer = me.role === 'viewer';
  show($('control'), m.mine ? 'you have control' : m.control ? `${m.control} has control` : 'no page has control');
  show($('take'), m.mine ? 'Let go' : m.control ? 'Take it from them' : 'Take control');
  $('take').hidden = viewer;
  for (const id of ['go', 'cancel', 'instruction']) $(id).disabled = viewer || line !== 'up';
  const left = m.left_m ? `, ${Math.abs(m.left_m).toFixed(2)} m left` : m.left_deg ? `, ${Math.abs(m.left_deg)}° left` : '';
  const doing = m.state === 'MOVING' ? `${m.action || 'Moving'}${left}` : STATES[m.state] || m.state || 'Waiting for the robot';
  const goal = m.instruction ? ` — “${m.instruction}”` : '';
  show($('doing'), `${doing}${goal}${m.unverified ? ' — UNVERIFIED: the draft model alone' : ''}`);
  show($('thought'), (m.state && m.state !== 'MOVING' ? m.reason : '') || '');
  const age = m.camera_age_s;
  level($('age'), age == null ? 'no camera' : `${(1000 * age).toFixed(0)} ms`, age == null || age > 1 ? 'bad' : 'good');
  if (!pending) {
    const held = m.estopped ? 'E-STOP IS LATCHED' : '';
    level($('stands'), !m.state ? 'unknown whether the robot stands' : held || (m.standing ? 'the robot stands' : 'the robot MOVES'),
      !m.state || m.estopped ? 'bad' : m.standing ? 'good' : 'warn');
  }
  $('sim').hidden = !m.simulator || viewer;
  $('reset').hidden = !m.estopped;
  $('estop').hidden = !!m.estopped;
  showMission(m.mission);
  const figures = { Link: m.link ? `${m.link}${m.rtt_ms ? `, ${m.rtt_ms} ms` : ''}` : 'not heard',
    Camera: age == null ? 'none' : `${(1000 * age).toFixed(0)} ms old`,
    Odometry: m.odom_age_s == null ? 'none' : `${(1000 * m.odom_age_s).toFixed(0)} ms old`,
    Method: method || lastMethod || 'no decision yet',
    Verifier: verifier || 'not heard',
    Robot: m.robot_says || 'state unknown', Battery: m.battery == null ? 'unknown' : `${Math.round(100 * m.battery)} %`,
    'Held by': m.held_by || 'nothing', Pages: `${m.pages} open` };
  const list = $('figures');
  if (!list.children.length) for (const name of Object.keys(figures)) list.append(make('dt', name), make('dd'));
  Object.values(figures).forEach((words, i) => show(list.children[2 * i + 1], words));
}
let lastMethod = '', method = '', verifier = '', shownMission = '';
function showMission(mission) {
  const key = JSON.stringify(mission);
  if (key === shownMission) return;
  shownMission = key;
  $('mission-orders').hidden = !mission || mission.phase === 'ended';
  show($('mission-state'), !mission ? 'none: “go to the table, then the box” makes one'
    : [mission.name, mission.phase === 'ended' ? (mission.code === 'NONE' ? 'done' : `ended ${mission.code}`) : mission.phase, mission.why]
      .filter(Boolean).join(': '));
  $('mission-steps').replaceChildren(...(mission ? mission.steps : []).map((step, i) => {
    const item = make('li', `${step.words} — ${step.progress}${step.message ? ` (${step.code} ${step.message})` : ''} `);
    item.dataset.progress = step.progress;
    if (step.progress === 'pending' && i > 0 && mission.steps[i - 1].progress === 'pending') {
      const up = make('button', '↑');
      up.setAttribute('aria-label', `Move “${step.words}” up`);
      up.onclick = () => send({ t: 'order', order: 'move', step: step.number, place: i });
      item.append(up);
    }
    return item;
  }));
}
function showMap() {
  drawMap($('map'), map, state.pose);
  const list = map.places.map((p, i) => make('li',
    `${i + 1}: ${p.kind === 'begin' ? 'began' : p.code === 'NONE' ? 'done' : `ended ${p.code}`} “${p.words}”`)).slice(-6);
  $('places').replaceChildren(...list);
}
function thinking({ words, pieces, unverified }) { // tokens as they arrive, with their origin
  $('now').hidden = !words;
  const parts = pieces.length ? pieces : [[words, unverified ? 'unverified' : '']];
  $('growing').replaceChildren(...parts.map(([piece, origin]) => make('span', piece, origin)));
}
function showDecisions({ all, new: fresh }) {
  const list = $('decisions'), newest = (all || fresh || []).at(-1);
  if (newest) lastMethod = newest.method;
  if (all) list.replaceChildren(...all.map(card).reverse());
  for (const one of fresh || []) list.prepend(card(one));
  while (list.children.length > 12) list.lastChild.remove();
}
function log(how, words, at) {
  const item = make('li', `${new Date(1000 * at).toLocaleTimeString()}  ${words}`);
  item.dataset.level = how;
  $('log').prepend(item);
  while ($('log').children.length > 200) $('log').lastChild.remove();
}
function showHealth(rows) {
  const bad = rows.filter((r) => r.level !== 'ok');
  const of = (what) => rows.find((r) => r.name === `${state.robot ? `${state.robot}/` : ''}vlm_nav_node: ${what}`);
  const found = of('verifier'), chosen = of('method');
  verifier = found ? [found.message, `RTT ${shorter(found.values['RTT ms'])} ms`, found.values.load].filter(Boolean).join(', ') : '';
  method = chosen ? [chosen.message, chosen.values.why].filter(Boolean).join(' — ') : '';
  show($('worst'), rows.length ? (bad.length ? `(${bad.length} with problems)` : '(all well)') : '(nothing heard)');
  $('rows').replaceChildren(...rows.map((r) => {
    const item = make('li', '', 'small'), more = Object.entries(r.values).map(([name, value]) => `${name} ${shorter(value)}`).join(' · ');
    item.append(make('b', r.name), make('span', ` ${r.message} `), make('span', more, 'soft'));
    item.dataset.level = { ok: 'good', warn: 'warn' }[r.level] || 'bad';
    return item;
  }));
}
const shorter = (value) => (/^-?\d+\.\d{3,}$/.test(value) ? Number(value).toFixed(2) : value);
function showParams(rows) {
  const box = $('params');
  if (box.contains(document.activeElement)) return; // not while a field is being edited
  const key = JSON.stringify(rows);
  if (box.dataset.key === key) return;
  box.dataset.key = key;
  box.replaceChildren(...rows.map((p) => {
    const row = make('div'), id = `p-${p.node}-${p.name}`, name = make('label', p.name);
    name.htmlFor = id;
    name.title = p.about;
    const words = p.kind === 'bool' ? ['true', 'false'] : p.choices;
    const input = make(words.length ? 'select' : 'input');
    input.id = id;
    if (words.length) input.append(...words.map((word) => new Option(word)));
    else if (p.kind !== 'str') Object.assign(input, { type: 'number', step: 'any', min: p.low, max: p.high });
    input.value = p.value ?? '';
    input.disabled = me.role === 'viewer' || p.value == null;
    const allowed = words.length ? '' : p.low == null ? '' : ` (${p.low} to ${p.high})`;
    name.append(make('span', allowed, 'small'));
    input.onchange = () => {
      const value = p.kind === 'bool' ? input.value === 'true' : p.kind === 'str' ? input.value : Number(input.value);
      box.dataset.key = '';
      send({ t: 'param', node: p.node, name: p.name, value });
    };
    row.append(name, input);
    return row;
  }));
}
function answer(words, how) { level($('answer'), words || '', how); }

// -- commands

function stop(how) {
  stopId += 1;
  pending = stopId;
  stood = false;
  send({ t: 'stop', id: String(stopId), how });
  if (line !== 'up') { level($('stands'), 'NOT SENT: no connection. Stop it by hand', 'bad'); return; }
  level($('stands'), 'STOP sent …', 'warn');
  const mine = stopId;
  setTimeout(() => { if (pending === mine && !stood) level($('stands'), 'NOT CONFIRMED that it stands', 'bad'); }, 1500);
}
function stands({ id, ms }) {
  if (id !== String(pending)) return;
  if (ms == null) { level($('stands'), 'IT DOES NOT STAND', 'bad'); return; }
  stood = true;
  level($('stands'), `the robot stands, ${ms} ms after STOP`, 'good');
  setTimeout(() => { if (id === String(pending)) pending = 0; }, 2500);
}
const typing = (element) => element.matches('input, textarea, select, [contenteditable]');
addEventListener('keydown', (event) => {
  if (event.repeat) return;
  const space = event.code === 'Space' && !typing(event.target);
  if (event.key !== 'Escape' && !space) return;
  event.preventDefault(); // also keeps the focused button from being pressed
  stop(event.key === 'Escape' ? 'escape' : 'space');
}, true);
addEventListener('keyup', (event) => { if (event.code === 'Space' && !typing(event.target)) event.preventDefault(); }, true);
$('stop').addEventListener('pointerdown', () => stop('button'));
$('stop').addEventListener('click', (event) => { if (event.detail === 0) stop('button'); }); // clicks by a screen reader
$('estop').onclick = () => send({ t: 'estop', id: 'e' });
$('reset').onclick = () => send({ t: 'reset' });
$('take').onclick = () => send(state.mine ? { t: 'release' } : { t: 'take', force: !!state.control });
$('cancel').onclick = () => send({ t: 'cancel' });
function look(robot) { send({ t: 'look', robot }); $('log').replaceChildren(); }
$('robot').onchange = () => look($('robot').value);
blackbox(send);
$('mission-orders').onclick = ({ target }) => { if (target.dataset.order) send({ t: 'order', order: target.dataset.order }); };

const kept = JSON.parse(localStorage.getItem('history') || '[]');
const listHistory = () => $('history').replaceChildren(...kept.map((words) => new Option(words)));
listHistory();
function sayIt(words, more = {}) {
  if (me.role === 'viewer') return;
  $('steps').hidden = true;
  answer('', 'good');
  if (!state.control) send({ t: 'take' }); // the first instruction takes control
  send({ t: 'say', text: words, ...more });
  said = words;
  kept.splice(0, kept.length, words, ...kept.filter((w) => w !== words).slice(0, 29));
  localStorage.setItem('history', JSON.stringify(kept));
  listHistory();
}
$('say').onsubmit = (event) => {
  event.preventDefault();
  const words = $('instruction').value.trim();
  if (words) { sayIt(words); $('instruction').select(); }
};
function askSteps({ text, steps }) {
  said = text;
  $('steps').hidden = false;
  $('steps').querySelector('ol').replaceChildren(...steps.map((step) => make('li', step)));
  $('steps-go').focus();
}
$('steps-go').onclick = () => sayIt(said, { confirmed: true });
$('steps-one').onclick = () => sayIt(said, { one: true });
$('steps-no').onclick = () => { $('steps').hidden = true; };

// -- speech, if the browser supports it

const Recognition = window.SpeechRecognition || window.webkitSpeechRecognition;
if (Recognition) {
  const ear = new Recognition(), button = $('talk');
  button.hidden = false;
  ear.interimResults = true;
  button.onclick = () => (button.getAttribute('aria-pressed') === 'true' ? ear.stop() : ear.start());
  ear.onstart = () => button.setAttribute('aria-pressed', 'true');
  ear.onend = () => button.setAttribute('aria-pressed', 'false');
  ear.onerror = (event) => answer(`not understood (${event.error})`, 'warn');
  ear.onresult = (event) => {
    const words = [...event.results].map((r) => r[0].transcript).join(' ').trim();
    send({ t: 'heard', text: words }); // stop words act at once
    $('instruction').value = words;
    if (!event.results[event.results.length - 1].isFinal) return;
    answer(`heard: “${words}”. Go starts it.`, 'good');
    if (window.speechSynthesis) speechSynthesis.speak(new SpeechSynthesisUtterance(words));
    $('go').focus();
  };
}
