// Draws the camera picture with the motion under way, and the path from above.
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function drawCamera(canvas, picture, state) {
  if (canvas.width !== picture.width || canvas.height !== picture.height) {
    canvas.width = picture.width;
    canvas.height = picture.height;
  }
  const c = canvas.getContext('2d'), w = canvas.width, h = canvas.height;
  c.drawImage(picture, 0, 0);
  if (!state.motion) return;
  const [metres, turn] = state.motion;
  c.strokeStyle = c.fillStyle = state.unverified ? '#ff5a5a' : '#4fd1ff';
  c.lineWidth = w / 60;
  c.lineCap = 'round';
  c.beginPath();
  c.moveTo(w / 2, h * .97);
  const x = w / 2 - Math.sign(turn) * (turn ? w * .3 : 0), y = turn ? h * .72 : h * (.9 - .35 * Math.min(1, metres));
  c.quadraticCurveTo(w / 2, turn ? h * .72 : h * .8, x, y);
  c.stroke();
  c.beginPath();
  const size = w / 22;
  if (turn) {
    const side = Math.sign(turn);
    c.moveTo(x - side * size * 1.4, y); c.lineTo(x, y - size); c.lineTo(x, y + size);
  } else { c.moveTo(x, y - size * 1.4); c.lineTo(x - size, y); c.lineTo(x + size, y); }
  c.fill();
}

export function drawMap(canvas, map, pose) {
  const c = canvas.getContext('2d'), w = canvas.width, h = canvas.height;
  c.clearRect(0, 0, w, h);
  const places = map.places || [];
  const points = [...map.path, ...places.map((p) => [p.x, p.y]), ...(pose ? [[pose[0], pose[1]]] : [])];
  if (!points.length) return;
  const xs = points.map((p) => p[0]), ys = points.map((p) => p[1]);
  const span = Math.max(2, 1.25 * Math.max(Math.max(...xs) - Math.min(...xs), (Math.max(...ys) - Math.min(...ys)) * w / h));
  const mx = (Math.max(...xs) + Math.min(...xs)) / 2, my = (Math.max(...ys) + Math.min(...ys)) / 2, k = w / span;
  const at = ([x, y]) => [w / 2 + (x - mx) * k, h / 2 - (y - my) * k];
  c.strokeStyle = style('--line');
  c.lineWidth = 1;
  for (let m = Math.ceil(mx - span / 2); m < mx + span / 2; m++) line(c, at([m, my - span]), at([m, my + span]));
  for (let m = Math.ceil(my - span / 2); m < my + span / 2; m++) line(c, at([mx - span, m]), at([mx + span, m]));
  c.strokeStyle = style('--accent');
  c.lineWidth = 4;
  c.beginPath();
  map.path.forEach((p, i) => (i ? c.lineTo(...at(p)) : c.moveTo(...at(p))));
  c.stroke();
  c.fillStyle = style('--warn');
  for (const p of map.seen || []) { const [x, y] = at(p); c.fillRect(x - 2, y - 2, 4, 4); }
  c.fillStyle = style('--bad');
  for (const p of map.touched || []) { const [x, y] = at(p); c.fillRect(x - 7, y - 7, 14, 14); }
  const begun = [...places].reverse().find((p) => p.kind === 'begin');
  if (map.fence_m && begun) {
    c.strokeStyle = style('--warn');
    c.setLineDash([8, 8]);
    c.beginPath();
    c.arc(...at([begun.x, begun.y]), map.fence_m * k, 0, 7);
    c.stroke();
    c.setLineDash([]);
  }
  places.forEach((p, i) => {
    const [x, y] = at([p.x, p.y]);
    c.fillStyle = p.kind === 'begin' ? style('--soft') : style(p.code === 'NONE' ? '--good' : '--bad');
    c.beginPath();
    c.arc(x, y, 9, 0, 7);
    c.fill();
    c.fillStyle = style('--card');
    c.font = 'bold 12px sans-serif';
    c.textAlign = 'center';
    c.fillText(String(i + 1), x, y + 4);
  });
  if (pose) {
    const [x, y] = at(pose);
    c.save();
    c.translate(x, y);
    c.rotate(-pose[2]);
    c.fillStyle = style('--ink');
    c.beginPath();
    c.moveTo(18, 0); c.lineTo(-11, 11); c.lineTo(-11, -11);
    c.fill();
    c.restore();
  }
  c.fillStyle = style('--soft');
  c.font = '14px sans-serif';
  c.textAlign = 'left';
  c.fillText('1 m grid', 8, h - 8);
}
function line(c, a, b) { c.beginPath(); c.moveTo(...a); c.lineTo(...b); c.stroke(); }
