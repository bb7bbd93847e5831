// The page at `/` of `locker serve`: routes by the hash, one stream of events for the view that is open, `textContent`
// for all that others have written.

const SVG = "http://www.w3.org/2000/svg";
const PAGE_HEADER = { "X-Locker-Page": "1" };
const PAST = 300;
const SILENCE_MS = 30_000;
const STORE_ERROR_MS = 5_000;

const byId = (id) => document.getElementById(id);
const tbody = (id) => byId(id).tBodies[0];

// Texts ---------------------------------------------------------------------------------------------------------------

const number = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });
const counted = (n, one, many) => `${number.format(n)} ${n === 1 ? one : many}`;

/** Returns the text without what would reverse it or break the line: each such character is written as its number. */
function printable(text) {
  const escaped = (letter) => `\\u{${letter.codePointAt(0).toString(16)}}`;
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, escaped);
}

function shortened(text, most) {
  const letters = [...printable(text)];
  return letters.length > most ? `${letters.slice(0, most).join("")}\u2026` : letters.join("");
}

/** Returns a duration in its two largest units: `250 ms`, `41 s`, `2 min 5 s`, `3 d 4 h`. */
function duration(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const s = Math.floor(ms / 1000);
  const units = [["d", Math.floor(s / 86_400)], ["h", Math.floor(s / 3600) % 24], ["min", Math.floor(s / 60) % 60],
    ["s", s % 60]];
  const first = units.findIndex(([, n]) => n > 0);
  return units.slice(first, first + 2).filter(([, n]) => n > 0).map(([unit, n]) => `${n} ${unit}`).join(" ");
}

function timeOfDay(at) {
  const date = new Date(at);
  const isToday = date.toDateString() === new Date().toDateString();
  const time = date.toLocaleTimeString("en-GB");
  return isToday ? time : `${date.toLocaleDateString("en-CA")} ${time}`;
}

const placeOf = ({ file, line }) => (file ? `${file}${line ? `:${line}` : ""}` : "");
const titleOf = (entry) => entry.name ?? entry.function ?? entry.key;

// Elements ------------------------------------------------------------------------------------------------------------

/** Sets the text only if it differs: so that a selection is kept. */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function element(tag, { text, className, ...attributes } = {}, ...children) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function show(id, isShown, text) {
  byId(id).hidden = !isShown;
  if (text !== undefined) setText(byId(id), text);
}

/** Shows a message that is read aloud, also if it is the one that is shown already. */
function alertIn(id, text) {
  show(id, false, "");
  requestAnimationFrame(() => show(id, true, text));
}

/** Texts that change as time passes: the duration `ms` at the time `at`, growing or shrinking. */
const clocks = new Map();

function setClock(target, ms, direction, otherwise = "\u2013") {
  if (ms === null || ms === undefined) {
    clocks.delete(target);
    return setText(target, otherwise);
  }
  clocks.set(target, { ms, direction, at: performance.now() });
  setText(target, duration(ms));
}

function moveClocks() {
  if (names.isPaused && !byId("names").hidden) return;
  for (const [target, { ms, direction, at }] of clocks) {
    if (!target.isConnected) clocks.delete(target);
    else setText(target, duration(ms + direction * (performance.now() - at)));
  }
}

/** Makes the rows of a table these. A cell is a text, or a function that fills it. */
function fill(body, lines, classes) {
  while (body.rows.length > lines.length) body.deleteRow(-1);
  lines.forEach((cells, index) => {
    const row = body.rows[index] ?? body.insertRow();
    cells.forEach((cell, column) => {
      const target = row.cells[column] ?? row.appendChild(element("td", { className: classes[column] }));
      if (typeof cell === "function") cell(target);
      else setText(target, cell);
    });
  });
}

// Messages ------------------------------------------------------------------------------------------------------------

function announce(text) {
  setText(byId("status"), text);
}

const problems = { session: null, connection: null, store: null, storeUntil: 0 };

function showProblem() {
  const text = problems.session ?? problems.connection ?? problems.store;
  if (text === null && !byId("problem").hidden) announce("The page is up to date again.");
  if (text !== null && (byId("problem").hidden || byId("problem").textContent !== text)) announce(text);
  show("problem", text !== null, text ?? "");
}

function setProblem(of, text) {
  problems[of] = text;
  if (of === "store") problems.storeUntil = performance.now() + STORE_ERROR_MS;
  showProblem();
}

function forgetStoreProblem() {
  if (problems.store !== null && performance.now() > problems.storeUntil) setProblem("store", null);
}

// Streams -------------------------------------------------------------------------------------------------------------

/** Calls `on[event](data)` for each event of the body, and `alive` for each piece of it. */
async function readEvents(body, on, alive) {
  let rest = "";
  let event = "message";
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    alive();
    const lines = (rest + piece.value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("event:")) event = line.slice(6).trim();
      else if (line.startsWith("data:")) on[event]?.(JSON.parse(line.slice(5)));
    }
  }
}

/** Reads one stream. Returns the seconds until the next try, or `null` if there is nothing to try again. */
async function readStream(path, on, signal) {
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(), SILENCE_MS);
  };
  try {
    const response = await fetch(path, { signal: AbortSignal.any([signal, silence.signal]), cache: "no-store" });
    if (!response.ok) return await refusedStream(response);
    setProblem("connection", null);
    await readEvents(response.body, on, alive);
  } catch {
    // The connection has failed, or a signal has ended it: the next lines tell which.
  } finally {
    clearTimeout(timer);
  }
  if (signal.aborted) return null;
  setProblem("connection", "The connection to the server is lost: trying again.");
  return 1;
}

async function refusedStream(response) {
  if (response.status === 401) {
    sessionOver();
    return null;
  }
  const reason = shortened((await response.text()).trim() || String(response.status), 200);
  const isLasting = response.status < 500;
  const seconds = Number(response.headers.get("Retry-After")) || 5;
  if (isLasting) setProblem("connection", `The server refuses this view: ${reason}`);
  else setProblem("connection", `The server does not send this view now (${reason}): trying again in ${seconds} s.`);
  return isLasting ? null : seconds;
}

/** Follows a stream, also over a broken connection, until the returned function is called. */
function follow(path, on) {
  const end = new AbortController();
  const read = async () => {
    const seconds = await readStream(path, on, end.signal);
    if (seconds !== null && !end.signal.aborted) setTimeout(() => end.signal.aborted || read(), seconds * 1000);
  };
  read();
  return () => end.abort();
}

let closeStream = () => {};

function openStream() {
  closeStream();
  closeStream = () => {};
  const view = route();
  // What is shown in a pause belongs to another filter.
  if (view.name === "names" && names.isPaused && namesPath() !== names.path) resume();
  const isWanted = session.role && !document.hidden && !(view.name === "names" && names.isPaused);
  if (view.name === "names") names.path = namesPath();
  if (isWanted) closeStream = view.name === "key" ? follow(keyPath(view), keyEvents) : follow(namesPath(), namesEvents);
}

// Session -------------------------------------------------------------------------------------------------------------

let session = { role: null, needs_token: false };

async function loadSession() {
  try {
    const response = await fetch("/session", { headers: PAGE_HEADER, cache: "no-store" });
    if (!response.ok) throw new Error(await response.text());
    session = await response.json();
  } catch {
    setProblem("connection", "The server does not answer: trying again.");
    setTimeout(loadSession, 2000);
    return;
  }
  setProblem("connection", null);
  setText(byId("server"), `server ${session.server}, store ${session.store}`);
  openView();
}

function showSession() {
  show("log-out", session.needs_token && session.role !== null);
  show("role", session.role === "read");
}

function sessionOver() {
  session.role = null;
  openView();
  alertIn("login-reason", "Session over: log in again.");
}

async function logIn(event) {
  event.preventDefault();
  const body = new URLSearchParams({ token: byId("token").value });
  const response = await fetch("/session", { method: "POST", headers: PAGE_HEADER, body }).catch(() => null);
  if (response?.ok) {
    byId("token").value = "";
    show("login-reason", false);
    await loadSession();
    if (session.role === null) alertIn("login-reason", NO_COOKIE);
    return;
  }
  alertIn("login-reason", await whyNoLogin(response));
  byId("token").select();
}

const NO_COOKIE = "The token is right, but the server does not get the session back: does the browser take cookies?";

async function whyNoLogin(response) {
  if (!response) return "The server does not answer: try again.";
  if (response.status === 401) return "This is not a token of the server.";
  return `The server refuses the login: ${shortened((await response.text()).trim() || String(response.status), 200)}`;
}

async function logOut() {
  const response = await fetch("/session", { method: "DELETE", headers: PAGE_HEADER }).catch(() => null);
  if (!response?.ok && response?.status !== 401) {
    return setProblem("session", "You are still logged in: the server did not end the session. Try again.");
  }
  setProblem("session", null);
  session.role = null;
  show("login-reason", false);
  openView();
  loadSession();
}

// Routes --------------------------------------------------------------------------------------------------------------

const ORDERS = ["waiting", "longest", "age", "name"];

/** Returns the view that the hash names: `#/names?prefix=P&kind=K&order=O`, or `#/key?key=KEY`. */
function route() {
  const [path, query = ""] = location.hash.slice(1).split(/\?(.*)/s);
  const values = new URLSearchParams(query);
  if (path === "/key" && values.get("key")) return { name: "key", key: values.get("key") };
  const order = ORDERS.includes(values.get("order")) ? values.get("order") : "waiting";
  return { name: "names", prefix: values.get("prefix") ?? "", kind: values.get("kind") ?? "", order };
}

const linkTo = (key) => `#/key?key=${encodeURIComponent(key)}`;

function namesQuery() {
  const query = new URLSearchParams();
  for (const id of ["prefix", "kind", "order"]) {
    if (byId(id).value && !(id === "order" && byId(id).value === "waiting")) query.set(id, byId(id).value);
  }
  return query.toString();
}

function openView() {
  byId("confirm").close();
  // Else it would lead back to the names a moment after a name was opened.
  clearTimeout(typing);
  const view = session.role ? route() : { name: "login" };
  for (const name of ["login", "names", "key"]) show(name, name === view.name);
  showSession();
  if (view.name === "names") openNames(view);
  if (view.name === "key") openKey(view);
  if (view.name === "login") forgetAll();
  document.title = view.name === "key" ? `locker: ${shortened(view.key, 60)}` : "locker";
  const first = view.name === "login" ? byId("token") : byId(`${view.name}-title`);
  first.focus({ preventScroll: true });
  scrollTo(0, 0);
  openStream();
}

// The view of names ---------------------------------------------------------------------------------------------------

const names = { rows: new Map(), isPaused: false, isFiltering: false, past: {}, path: null };

function namesPath() {
  const query = namesQuery();
  return `/live?view=names${query && `&${query}`}`;
}

function openNames({ prefix, kind, order }) {
  for (const [id, value] of Object.entries({ prefix, kind, order })) byId(id).value = value;
  if (byId("kind").selectedIndex < 0) byId("kind").value = "";
  byId("back").href = location.hash || "#/names";
  showOrder();
}

function showOrder() {
  for (const heading of document.querySelectorAll("[data-order]")) {
    const { order } = heading.dataset;
    if (order !== byId("order").value) heading.removeAttribute("aria-sort");
    else heading.setAttribute("aria-sort", order === "name" ? "ascending" : "descending");
  }
}

let typing;

/** Shows what the form says: another stream, and a hash that leads here. */
function filterNames() {
  // A link has been followed, and its event is still to come.
  if (route().name !== "names") return;
  const query = namesQuery();
  history.replaceState(null, "", `#/names${query && `?${query}`}`);
  byId("back").href = location.hash;
  names.isFiltering = true;
  showOrder();
  openStream();
}

function resume() {
  names.isPaused = false;
  byId("pause").setAttribute("aria-pressed", "false");
  announce("Live again.");
}

function setPaused(isPaused) {
  if (isPaused) {
    names.isPaused = true;
    byId("pause").setAttribute("aria-pressed", "true");
    announce("Paused.");
  } else resume();
  openStream();
}

/** Removes what was shown: nobody is logged in. */
function forgetAll() {
  dropRows([...names.rows.keys()]);
  for (const name of Object.keys(names.past)) drawChart(name, []);
  names.past = {};
  for (const id of ["holds", "waiting", "grants", "refusals", "store"]) setText(byId(id), "-");
  for (const id of ["round-trip", "count"]) setText(byId(id), "");
  show("nothing", false);
  openKey({ key: "" });
}

function showTotals(totals) {
  for (const name of ["holds", "waiting", "grants", "refusals"]) setText(byId(name), number.format(totals[name]));
  setText(byId("store"), printable(totals.store));
  setText(byId("round-trip"), totals.round_trip_ms === null ? "" : `${number.format(totals.round_trip_ms)} ms`);
  for (const name of Object.keys(names.past)) {
    names.past[name] = [...names.past[name], totals[name]].slice(-PAST);
    drawChart(name);
  }
  showCount(totals);
  forgetStoreProblem();
}

function showCount({ shown, matching, names: all, more, seen_ms_ago: age, whole = true }) {
  const others = matching === all ? "" : `, ${number.format(all)} names in all`;
  const unseen = more ? ", and more that the server does not look at" : "";
  const seen = age >= 3000 ? `, as seen ${duration(age)} ago` : "";
  const partial = whole ? "" : ", and the server still looks for more";
  const count = `${number.format(shown)} of ${number.format(matching)} shown${others}${unseen}${partial}${seen}`;
  setText(byId("count"), count);
  show("nothing", shown === 0 && whole, all === 0 ? "No name is in use." : "No name fits this filter.");
  if (names.isFiltering) announce(byId("count").textContent);
  names.isFiltering = false;
}

function drawChart(name, values = names.past[name]) {
  const chart = document.querySelector(`[data-of="${name}"]`);
  const most = Math.max(...values, 0);
  const points = values.map((value, index) => `${PAST - values.length + index} ${27 - (26 * value) / (most || 1)}`);
  const svg = chart.firstChild ?? chart.appendChild(newChart());
  svg.firstChild.setAttribute("d", points.length ? `M${points.join("L")}` : "");
  svg.setAttribute("aria-label", `the last five minutes: at most ${number.format(most)}`);
}

function newChart() {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("role", "img");
  svg.setAttribute("viewBox", `0 0 ${PAST} 28`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.append(document.createElementNS(SVG, "path"));
  return svg;
}

function newRow(key) {
  const link = element("a", { href: linkTo(key) });
  const place = element("span", { className: "place" });
  const row = element("tr", {}, element("th", { scope: "row" }, link, place), element("td"));
  for (let column = 2; column < 7; column += 1) row.append(element("td", { className: "number" }));
  return row;
}

function showRow(line, row) {
  const [name, kind, used, waiting, longest, age, left] = line.cells;
  const [link, place] = name.children;
  setText(link, shortened(titleOf(row), 120));
  link.title = printable(row.key);
  const call = row.function && row.key.split("|")[1];
  setText(place, shortened([placeOf(row), call && `arguments ${call.slice(0, 8)}`].filter(Boolean).join(", "), 120));
  setText(kind, row.kind ?? "");
  setText(used, number.format(row.used) + (row.size === null ? "" : ` of ${number.format(row.size)}`));
  setText(waiting, number.format(row.waiting));
  setClock(longest, row.longest_ms, 1);
  setClock(age, row.age_ms, 1);
  setClock(left, row.left_ms, -1);
}

function putRows(rows, className) {
  for (const row of rows) {
    let line = names.rows.get(row.key);
    if (!line) {
      line = newRow(row.key);
      line.className = className;
      names.rows.set(row.key, line);
      byId("rows").append(line);
    }
    showRow(line, row);
  }
}

function dropRows(keys) {
  for (const key of keys) {
    names.rows.get(key)?.remove();
    names.rows.delete(key);
  }
}

/** Moves as few rows as possible, and keeps the focus in one that moves. */
function orderRows(keys) {
  const focused = document.activeElement;
  let next = byId("rows").firstElementChild;
  for (const line of keys.map((key) => names.rows.get(key)).filter(Boolean)) {
    if (line === next) next = next.nextElementSibling;
    else byId("rows").insertBefore(line, next);
  }
  if (focused !== document.activeElement) focused.focus({ preventScroll: true });
}

const namesEvents = {
  totals: showTotals,
  past({ grants, refusals, waiting }) {
    names.past = { grants, refusals, waiting };
    Object.keys(names.past).forEach((name) => drawChart(name));
  },
  rows({ rows }) {
    performance.mark("rows");
    const keys = rows.map((row) => row.key);
    dropRows([...names.rows.keys()].filter((key) => !keys.includes(key)));
    putRows(rows, "");
    orderRows(keys);
  },
  changes({ put = [], gone = [], order }) {
    dropRows(gone);
    putRows(put, "new");
    if (order) orderRows(order);
  },
  error: ({ text }) => setProblem("store", `The store cannot be read: ${printable(text)}`),
};

// The view of one key -------------------------------------------------------------------------------------------------

const keyPath = ({ key }) => `/live?view=key&key=${encodeURIComponent(key)}`;

/** What the last event told, for the dialog. */
let current = null;

function openKey({ key }) {
  current = null;
  setText(byId("key-title"), shortened(key, 300));
  for (const id of ["key-about", "waiters-count"]) setText(byId(id), "");
  for (const id of ["explained", "server-events", "elsewhere"]) byId(id).replaceChildren();
  delete byId("explained").dataset.shape;
  for (const id of ["deadlock", "release", "waiters"]) show(id, false);
  showHolders([]);
  show("no-holders", false);
}

function showKey(told) {
  const { explained } = told;
  if (told.deadlock && !current?.deadlock) announce("Deadlock: callers wait for each other.");
  current = told;
  setText(byId("key-title"), shortened(titleOf(explained), 300));
  const about = [explained.kind, placeOf(explained), `key ${shortened(explained.key, 300)}`];
  setText(byId("key-about"), about.filter(Boolean).join(", "));
  show("deadlock", told.deadlock);
  show("release", session.role === "full" && told.can_release && told.release !== null);
  showHolders(explained.holders, told.ages_ms, told.holders_in_all);
  showWaiters(explained.waiting, told.waiters);
  showLines(told.text.split("\n").filter((line) => line.trim()));
  if (asked) checkAsked();
  forgetStoreProblem();
}

function showHolders(holders, ages = [], inAll = holders.length) {
  show("no-holders", holders.length === 0);
  const isCut = inAll > holders.length;
  show("holders-cut", isCut, `The first ${number.format(holders.length)} of ${number.format(inAll)}.`);
  byId("holders").parentElement.hidden = holders.length === 0;
  const cells = ({ note, fence, permits, left_ms: left }, index) => [
    shortened(note ?? "unknown", 200), String(fence), number.format(permits),
    (cell) => setClock(cell, ages[index], 1, "unknown"), (cell) => setClock(cell, left, -1, "until released"),
  ];
  fill(tbody("holders"), holders.map(cells), ["", "number code", "number", "number", "number"]);
}

function showWaiters(waiting, waiters = []) {
  const isCut = waiters.length > 0 && waiters.length < waiting;
  const first = isCut ? `, the first ${number.format(waiters.length)} in order:` : "";
  const count = counted(waiting, "caller waits", "callers wait");
  setText(byId("waiters-count"), waiting === 0 ? "Nobody waits." : count + first);
  show("waiters", waiters.length > 0);
  const list = byId("waiters");
  while (list.children.length > waiters.length) list.lastElementChild.remove();
  waiters.forEach((note, index) => {
    setText(list.children[index] ?? list.appendChild(element("li")), shortened(note ?? "unknown", 200));
  });
}

const depthOf = (line) => line.length - line.trimStart().length;

/** Shows lines as a list: a line that is indented more than the one before it is below that one. */
function showLines(lines) {
  const box = byId("explained");
  const shape = lines.map(depthOf).join();
  if (box.dataset.shape !== shape) box.replaceChildren(...newLines(lines));
  box.dataset.shape = shape;
  box.querySelectorAll("span").forEach((text, index) => {
    setText(text, shortened(lines[index].trim(), 500));
    text.className = /deadlock/i.test(lines[index]) ? "deadlock-line" : "";
  });
}

function newLines(lines) {
  const lists = [{ depth: -1, list: element("ul") }];
  for (const depth of lines.map(depthOf)) {
    while (lists.length > 1 && lists.at(-1).depth > depth) lists.pop();
    if (lists.length === 1 || lists.at(-1).depth < depth) lists.push({ depth, list: nestedList(lists.at(-1).list) });
    lists.at(-1).list.append(element("li", {}, element("span")));
  }
  return lists[0].list.children;
}

function nestedList(above) {
  const item = above.lastElementChild;
  return (item?.tagName === "LI" ? item : above).appendChild(element("ul"));
}

function showEvents(id, events) {
  const box = byId(id);
  if (events.length === 0) return box.replaceChildren(element("p", { text: "Nothing yet." }));
  const cells = ({ at, what, fence, waited_ms: waited }) => [
    timeOfDay(at), what.replaceAll("_", " "), String(fence ?? ""), waited === null ? "" : duration(waited),
  ];
  const body = box.querySelector("tbody") ?? newEvents(box);
  fill(body, events.map(cells), ["", "", "number code", "number"]);
}

function newEvents(box) {
  const head = element("tr");
  ["Time", "What", "Fence", "Waited"].forEach((text, column) => {
    head.append(element("th", { text, scope: "col", className: column > 1 ? "number" : "" }));
  });
  const body = element("tbody");
  const title = { "aria-labelledby": `${box.id}-title` };
  const table = element("table", title, element("thead", {}, head), body);
  box.replaceChildren(element("div", { className: "scroll", role: "region", tabindex: "0", ...title }, table));
  return body;
}

const keyEvents = {
  key: showKey,
  events({ server, elsewhere }) {
    showEvents("server-events", server);
    showEvents("elsewhere", elsewhere);
  },
  error: namesEvents.error,
};

// Release by force ----------------------------------------------------------------------------------------------------

/** What the dialog asks about: the holds that were shown when it was opened, and how many wait now. */
let asked = null;

/** The fence up to which a call ends holds: the highest of those that were shown. */
const fenceOf = ({ path }) => Number(new URLSearchParams(path.split("?")[1]).get("fence"));

/** Tells what is lost, and asks for the name if others wait. */
function showLoss() {
  const { holders, inAll, waiting, title } = asked;
  const notes = holders.slice(0, 5).map(({ note, fence }) => `${shortened(note ?? "unknown", 60)} (fence ${fence})`);
  const more = inAll > notes.length ? ", .." : "";
  const list = notes.length ? `: ${notes.join(", ")}${more}` : "";
  const lost = `${counted(inAll, "hold ends", "holds end")}${list}.`;
  const next = ` ${counted(waiting, "caller waits", "callers wait")}: the next is served at once.`;
  setText(byId("confirm-lost"), lost + (waiting === 0 ? "" : next));
  setText(byId("confirm-title"), `Release ${shortened(title, 60)} by force`);
  setText(byId("confirm-wanted"), printable(title));
  show("confirm-typed", waiting > 0);
}

/** The call ends none but those that were shown. If none of them is left, there is nothing to confirm any more. */
function checkAsked() {
  asked.waiting = current.explained.waiting;
  showLoss();
  const { holders } = current.explained;
  const isOneLeft = holders.some(({ fence }) => fence <= fenceOf(asked.release));
  if (asked.isSent || isOneLeft || byId("confirm-yes").disabled) return;
  byId("confirm-yes").disabled = true;
  const others = "None of these holds is left: cancel, and look again.";
  alertIn("confirm-problem", holders.length > 0 ? others : "It is not held any more.");
}

function askRelease() {
  const { explained, release, holders_in_all: inAll } = current;
  const { holders, waiting } = explained;
  asked = { title: titleOf(explained), holders, inAll, waiting, release, isSent: false };
  byId("confirm-name").value = "";
  byId("confirm-yes").disabled = false;
  show("confirm-problem", false);
  showLoss();
  byId("confirm").showModal();
  byId(waiting > 0 ? "confirm-name" : "confirm-no").focus();
}

async function release(event) {
  event.preventDefault();
  const call = asked;
  const typed = byId("confirm-name").value;
  if (call.waiting > 0 && typed !== printable(call.title) && typed !== call.title) {
    alertIn("confirm-problem", "This is not the name.");
    return byId("confirm-name").select();
  }
  call.isSent = true;
  byId("confirm-yes").disabled = true;
  const { method, path } = call.release;
  const response = await fetch(path, { method, headers: PAGE_HEADER }).catch(() => null);
  if (response?.status === 401) return sessionOver();
  const problem = response?.ok ? null : await refusal(response);
  const isOpen = asked === call;
  if (problem === null) {
    if (isOpen) byId("confirm").close();
    return announce(`Released by force: ${shortened(call.title, 60)}.`);
  }
  if (!isOpen) return announce(problem);
  call.isSent = false;
  byId("confirm-yes").disabled = false;
  alertIn("confirm-problem", problem);
}

async function refusal(response) {
  if (response === null) return "The server does not answer: whether it is released is not known.";
  const text = printable((await response.text()).trim());
  return response.status === 403 ? `Not allowed: ${text}` : `Not released: ${text || response.status}`;
}

// Start ---------------------------------------------------------------------------------------------------------------

byId("prefix").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(filterNames, 250);
});
byId("kind").addEventListener("change", filterNames);
byId("order").addEventListener("change", filterNames);
byId("filter").addEventListener("submit", (event) => event.preventDefault());
byId("pause").addEventListener("click", () => setPaused(!names.isPaused));
for (const heading of document.querySelectorAll("[data-order]")) {
  heading.firstElementChild.addEventListener("click", () => {
    byId("order").value = heading.dataset.order;
    filterNames();
  });
}
byId("login-form").addEventListener("submit", logIn);
byId("log-out").addEventListener("click", logOut);
byId("release").addEventListener("click", askRelease);
byId("confirm-no").addEventListener("click", () => byId("confirm").close());
byId("confirm-form").addEventListener("submit", release);
byId("confirm").addEventListener("close", () => {
  asked = null;
});
addEventListener("hashchange", openView);
addEventListener("pagehide", () => closeStream());
addEventListener("pageshow", (event) => event.persisted && openStream());
document.addEventListener("visibilitychange", openStream);
setInterval(moveClocks, 1000);
loadSession();
