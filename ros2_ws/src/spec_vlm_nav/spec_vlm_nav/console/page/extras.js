// Further parts of the page: offered instructions, several robots, the simulator's faults, the black box.
import { make } from './cards.js';

const $ = (id) => document.getElementById(id);
const read = (name) => { try { return JSON.parse(localStorage.getItem(name) || '[]'); } catch { return []; } };
const STATES = { MOVING: 'moving', SETTLING: 'coming to a stand', ESTOPPED: 'EMERGENCY STOP' };

export function offers(templates, say) {
  const box = $('offers'), field = $('instruction');
  const show = () => {
    const kept = read('favourites');
    box.replaceChildren(...[...kept, ...templates.filter((words) => !kept.includes(words))].map((words) => {
      const one = make('button', kept.includes(words) ? `★ ${words}` : words, 'offer');
      one.type = 'button';
      one.onclick = () => { field.value = words; say(words); };
      return one;
    }));
  };
  $('keep').onclick = () => {
    const words = field.value.trim().replace(/\s+/g, ' '), kept = read('favourites');
    if (!words) return;
    const rest = kept.filter((other) => other !== words);
    localStorage.setItem('favourites', JSON.stringify(kept.includes(words) ? rest : [words, ...rest].slice(0, 12)));
    show();
  };
  show();
}

export function fleet(robots, shown, look) {
  const box = $('fleet');
  box.hidden = robots.length < 2;
  if (box.hidden) return;
  if (box.children.length !== robots.length) box.replaceChildren(...robots.map(() => make('button', '', 'tile')));
  robots.forEach((robot, i) => {
    const tile = box.children[i], doing = robot.estopped ? 'EMERGENCY STOP'
      : STATES[robot.state] || (robot.state ? (robot.standing ? 'stands' : 'MOVES') : 'not heard');
    const words = [robot.name || 'the robot', doing, robot.instruction ? `“${robot.instruction}”` : '',
      robot.control ? `${robot.control} has control` : 'no page has control', robot.link ? `link ${robot.link}` : '',
      robot.battery == null ? '' : `battery ${Math.round(100 * robot.battery)} %`].filter(Boolean);
    if (tile.dataset.words !== words.join()) {
      tile.dataset.words = words.join();
      tile.replaceChildren(make('b', words[0]), ...words.slice(1).map((line) => make('span', line)));
    }
    tile.setAttribute('aria-pressed', String(robot.name === shown));
    tile.dataset.level = robot.estopped || !robot.state ? 'bad' : robot.standing ? 'good' : 'warn';
    tile.onclick = () => look(robot.name);
  });
}

export function simulator(faults, send) {
  $('faults').replaceChildren(...faults.map((name) => {
    const one = make('button', name === 'none' ? 'no fault' : name, 'offer');
    one.type = 'button';
    one.onclick = () => send({ t: 'fault', name });
    return one;
  }));
  $('room').onclick = () => send({ t: 'room', seed: Math.floor(Math.random() * 1e6) });
}

export function blackbox(send) {
  $('box').ontoggle = () => { if ($('box').open) send({ t: 'files' }); };
}
export function showFiles({ files, folder, why }, send) {
  $('box-where').textContent = why ? `${why}${folder ? ` (${folder})` : ''}` : `in ${folder}; to open one: specnav console --bag FILE`;
  $('files').replaceChildren(...files.map((file) => {
    const item = make('li'), get = make('button', `Download ${file.name}`);
    get.type = 'button';
    get.onclick = () => send({ t: 'file', name: file.name });
    item.append(get, make('span', ` ${(file.bytes / 1e6).toFixed(1)} MB, ${new Date(1000 * file.at).toLocaleString()}`, 'small'));
    return item;
  }));
}
export function fetchFile({ ticket }) {
  const link = make('a');
  link.href = `file/${ticket}`;
  link.download = '';
  link.click();
}
