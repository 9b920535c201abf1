// The page's connection to the console, in a worker thread: it works while the page is busy. A page that does not
// respond could not handle the STOP key: if it has control and the robot moves, this worker stops the robot.
const BEAT_MS = 150, TICK_MS = 30, ANSWER_MS = 400, SILENT_MS = 800, AGAIN_MS = 700;
let socket = null, hello = {}, url = '', alive = 0, heard = 0, hidden = false, lost = true;
let busyMs = 400, robot = '', shown = null, mine = false, moving = false, deadMan = false, saidBusy = false, refused = false;

const now = () => performance.now();
function send(message) {
  if (socket && socket.readyState === 1) socket.send(JSON.stringify(message));
}
function setLost(value, why) {
  if (value !== lost) { lost = value; postMessage({ link: value ? 'lost' : 'up', why }); }
}
function open() {
  if (refused) return;
  const ours = socket = new WebSocket(url);
  ours.binaryType = 'arraybuffer';
  // A new connection shows the same robot: STOP must not reach another one.
  ours.onopen = () => send({ t: 'hello', ...hello, robot: shown });
  ours.onmessage = (event) => { heard = now(); take(event.data); };
  ours.onclose = (event) => {
    if (ours !== socket) return;
    mine = moving = false;
    refused = [4401, 4403].includes(event.code);
    lost = false;
    setLost(true, refused ? event.reason : '');
    setTimeout(open, AGAIN_MS);
  };
}
async function take(data) {
  if (typeof data !== 'string') {
    const head = new DataView(data), at = head.getFloat64(4, true);
    try {
      const picture = await createImageBitmap(new Blob([new Uint8Array(data, 12)], { type: 'image/jpeg' }));
      postMessage({ picture, at }, [picture]);
    } catch { send({ t: 'drawn' }); }
    return;
  }
  const message = JSON.parse(data);
  if (message.t === 'hello') { deadMan = message.require_operator; busyMs = 1000 * message.busy_s; setLost(false); }
  if (message.t === 'state') { mine = message.mine; robot = message.robot; if (message.state) shown = robot; moving = message.standing === false; setLost(false); }
  postMessage({ message });
}
onmessage = ({ data }) => {
  if (data.open) { ({ url, hello } = data.open); shown = hello.robot; refused = false; open(); }
  if (data.send) send(data.send);
  // The console may still run although the socket is gone: STOP is also tried by POST.
  if (data.send && data.send.t === 'stop' && !(socket && socket.readyState === 1)) {
    fetch('stop', { method: 'POST', headers: { 'x-token': hello.token || '', 'x-robot': robot } })
      .then((answer) => postMessage({ posted: answer.ok }), () => postMessage({ posted: false }));
  }
  if (data.alive) { alive = now(); hidden = data.hidden; saidBusy = false; }
};
setInterval(() => {
  const answers = now() - alive < ANSWER_MS;
  // Browsers slow down the timers of a hidden page: it is not busy, but nobody sees it.
  if (mine && (answers && !hidden || hidden && !deadMan)) send({ t: 'beat' });
}, BEAT_MS);
// Time counts only while this worker itself runs on time: if the whole machine stalls, the page is not busy.
let ticked = now(), busyFor = 0, aliveBefore = 0;
setInterval(() => {
  const at = now();
  busyFor = alive === aliveBefore ? busyFor + Math.min(at - ticked, 1.5 * TICK_MS) : 0;
  ticked = at;
  aliveBefore = alive;
  if (mine && moving && !hidden && !saidBusy && busyMs && busyFor > busyMs) {
    saidBusy = true;
    send({ t: 'stop', id: 'busy', how: 'its page did not respond' });
  }
  if (socket && socket.readyState === 1 && heard && at - heard > SILENT_MS) setLost(true);
}, TICK_MS);
