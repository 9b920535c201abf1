// Cards of decisions: answer and action, tokens with their origin, and the shares of time.
export function make(tag, words = '', kind = '') {
  const made = document.createElement(tag);
  if (words !== '') made.textContent = words;
  if (kind) made.className = kind;
  return made;
}
const LANES = [['camera', 'camera'], ['edge', 'edge'], ['link', 'netlink'], ['cloud', 'cloud']];
const VERIFIED = ['', 'UNVERIFIED', 'confirmed afterwards', 'rolled back'];

export function card(d) {
  const item = make('li'), head = make('div', '', 'head');
  head.append(make('b', d.action || d.error || 'no action'));
  const energy = d.joules == null ? '' : `${d.joules.toFixed(1)} J`;
  const who = d.by === 'exploration' ? `exploration: ${d.rule}` : d.by;
  head.append(make('span', [who, VERIFIED[d.verification], d.method, `${Math.round(d.decision_ms)} ms`, energy]
    .filter(Boolean).join(' · ')));
  item.append(head);
  const body = make('div', '', 'body');
  if (d.frame) {
    const seen = make('img');
    seen.src = d.frame;
    seen.alt = 'the picture of this decision';
    body.append(seen);
  }
  const tokens = make('p', '', 'tokens');
  if (d.pieces && d.pieces.length) {
    for (const [words, origin] of d.pieces) tokens.append(make('span', words, origin));
  } else tokens.textContent = d.text || d.reasoning;
  body.append(tokens);
  item.append(body);
  if (d.error && d.action) item.append(make('p', d.error, 'small'));
  const total = LANES.reduce((sum, [lane]) => sum + d.shares[lane], 0);
  if (total > 0) {
    const bar = make('div', '', 'bar');
    for (const [lane, kind] of LANES) {
      const part = make('i', '', kind);
      part.style.width = `${100 * d.shares[lane] / total}%`;
      bar.append(part);
    }
    bar.setAttribute('aria-hidden', 'true');
    const shares = LANES.map(([lane]) => `${lane} ${Math.round(d.shares[lane])}`).join(' · ');
    const drafts = d.drafted ? ` · ${d.accepted} of ${d.drafted} drafts accepted in ${d.rounds} rounds` : '';
    item.append(bar, make('p', `${shares} ms${drafts}`, 'small'));
  }
  return item;
}
