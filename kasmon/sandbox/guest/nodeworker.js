'use strict';
// The node interpreter: one realm for all turns; top-level `let`, `const` and `class` persist and may be redeclared.
//
// node --expose-internals: only for node's own rewriting of top-level await, and the parser it needs. Without them code
// still runs, but `await` works only in functions. --experimental-vm-modules: for `import()` before node 20.12.
const fs = require('fs');
const net = require('net');
const path = require('path');
const util = require('util');
const v8 = require('v8');
const vm = require('vm');
const { Console } = require('console');
const { createRequire } = require('module');
const { pathToFileURL } = require('url');

const control = Number(process.env.KASMON_CONTROL);
delete process.env.KASMON_CONTROL;
const env = process.env, cwd = process.cwd, exit = process.exit.bind(process);
const { parse, stringify } = JSON;
const { writeSync } = fs;
const INTERRUPTED = 130, UNHEARD = 113;
const LOADER = (vm.constants && vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER)
  || ((named) => import(/^\.{0,2}\//.test(named) ? pathToFileURL(path.resolve(cwd(), named)) : named));

let rewritten = null, parser = null;
try {
  ({ processTopLevelAwait: rewritten } = require('internal/repl/await'));
  parser = require('internal/deps/acorn/acorn/dist/acorn');
} catch { /* see the top of this file */ }

globalThis.module = { exports: {} };
globalThis.exports = globalThis.module.exports;
globalThis.require = createRequire(path.join(cwd(), '_'));
const began = new Set(Object.getOwnPropertyNames(globalThis));
const isOurs = (name) => began.has(name);

let interrupt = null; // rejects the awaited promise
process.on('SIGINT', () => { if (interrupt) interrupt(new Interrupted()); });
process.on('uncaughtException', (error) => say(2, `Uncaught, in the background: ${told(error)}\n`));
process.on('unhandledRejection', (error) => say(2, `Not handled, in the background: ${told(error)}\n`));

class Interrupted extends Error {}

function say(file, text) {
  let rest = Buffer.from(text);
  while (rest.length) {
    try { rest = rest.subarray(fs.writeSync(file, rest)); } catch (error) { if (error.code !== 'EAGAIN') return; }
  }
}

function told(error) {
  if (!(error instanceof Error) && !(error && error.stack)) return `Uncaught ${util.inspect(error)}`;
  const lines = String(error.stack || error).split('\n');
  return lines.filter((line) => !/^\s+at .*(node:|nodeworker\.js)/.test(line)).join('\n');
}

// stdout and stderr are reopened if the turn before closed them; a second descriptor identifies the pipe of each.
const spare = [1, 2].map((file) => fs.openSync(`/proc/self/fd/${file}`, 'w'));

function isSpared(at) {
  try {
    const [there, ours] = [at + 1, spare[at]].map((file) => fs.fstatSync(file));
    return there.ino === ours.ino && there.dev === ours.dev;
  } catch { return false; }
}

function mend() {
  let isNew = false;
  ['stdout', 'stderr'].forEach((name, at) => {
    const isGone = !isSpared(at);
    if (isGone) {
      try { fs.closeSync(at + 1); } catch { /* it is closed */ } // else the code opened another file in its place
      fs.openSync(`/proc/self/fd/${spare[at]}`, 'w'); // it gets the lowest free number
    }
    const old = process[name];
    if (!isGone && !old.destroyed && !old.writableEnded) return;
    isNew = true;
    const made = new net.Socket({ fd: at + 1, readable: false, writable: true });
    made._destroy = (error, done) => done(error); // like node's own, it closes no file, which the next one reuses
    Object.defineProperty(process, name, { value: made, configurable: true, enumerable: true, writable: true });
  });
  if (isNew) globalThis.console = new Console(process.stdout, process.stderr);
}

// Turn top-level `let`, `const` and `class` into `var`, so that later turns see them and may redeclare them.
function open(code) {
  if (!parser) return code;
  let tree;
  try {
    tree = parser.parse(code, { ecmaVersion: 'latest', allowAwaitOutsideFunction: true });
  } catch { return code; }
  const edits = [];
  for (const each of tree.body) {
    if (each.type === 'VariableDeclaration' && each.kind !== 'var') edits.push([each.start, each.kind.length, 'var']);
    if (each.type === 'ClassDeclaration') edits.push([each.start, 0, `var ${each.id.name} = `], [each.end, 0, ';']);
  }
  edits.sort((a, b) => b[0] - a[0]);
  for (const [at, length, text] of edits) code = code.slice(0, at) + text + code.slice(at + length);
  return code;
}

function script(code, turn) {
  let text = open(code);
  if (/^\s*\{/.test(code) && !/;\s*$/.test(code)) { // taken as an object literal, not a block
    try { new vm.Script(`(${code.trim()})`); text = `(${code.trim()})`; } catch { /* a block */ }
  }
  let awaits = null;
  try { awaits = rewritten && rewritten(text); } catch { /* compiling the script reports the error */ }
  const options = { filename: `[node #${turn}]`, importModuleDynamically: LOADER };
  return { made: new vm.Script(awaits || text, options), awaits: Boolean(awaits) };
}

// Report where interrupts take effect: while a script starts or ends, one would be lost, or end the process.
function begins(nonce, waits) {
  try { writeSync(control, framed({ begun: nonce, waits })); } catch { /* closed: that ends this process */ }
}

// If a signal arrives while an earlier one ends a script, node keeps it and ends the next script: this one absorbs it.
const NEXT = new vm.Script('Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50)');
const isSignalled = (error) => Boolean(error) && error.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED';

function hush() {
  for (let heard = true; heard;) {
    heard = false;
    try { NEXT.runInThisContext({ breakOnSigint: true }); } catch (error) { heard = isSignalled(error); }
  }
}

async function value(code, turn, nonce) {
  const { made, awaits } = script(code, turn);
  begins(nonce, false);
  const result = made.runInThisContext({ displayErrors: true, breakOnSigint: true });
  if (!awaits) return result;
  result.catch(() => {}); // avoids an unhandled rejection after an interrupt
  const stopped = new Promise((_, fail) => { interrupt = fail; });
  begins(nonce, true);
  const ended = await Promise.race([result, stopped]);
  return ended && ended.value;
}

async function run({ code, variables, turn, nonce }) {
  mend();
  const before = Object.keys(variables).map((name) => [name, env[name]]);
  Object.assign(env, variables);
  let rc = 0;
  try {
    const result = await value(code, turn, nonce);
    if (result !== undefined) process.stdout.write(`${util.inspect(result, { depth: 4, maxArrayLength: 100 })}\n`);
  } catch (error) {
    const isStopped = error instanceof Interrupted || isSignalled(error);
    if (isSignalled(error)) hush();
    rc = isStopped ? INTERRUPTED : 1;
    say(2, `${isStopped ? 'Interrupted' : told(error)}\n`);
  } finally {
    interrupt = null;
  }
  for (const [name, old] of before) {
    if (old === undefined) delete env[name];
    else env[name] = old;
  }
  await Promise.all([flushed(process.stdout), flushed(process.stderr)]);
  return { rc, cwd: folder() };
}

function flushed(stream) {
  return new Promise((done) => {
    try { stream.write('', () => done()); } catch { done(); }
  });
}

function folder() {
  try { return cwd(); } catch { return ''; }
}

// Return why a value cannot be saved as it is; '' where it can. A class's instance would be restored as a plain object.
function flaw(value, seen = new Set()) {
  if (typeof value === 'function') return /^class\b/.test(String(value)) ? `class ${value.name}` : 'function';
  if (typeof value === 'symbol') return 'symbol';
  if (value === null || typeof value !== 'object' || seen.has(value)) return '';
  if (seen.size > 100000) return 'too large to be looked through';
  seen.add(value);
  const like = Object.getPrototypeOf(value);
  if (util.types.isProxy(value)) return 'proxy';
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer || value instanceof Date || value instanceof RegExp) return '';
  if (like !== null && !PLAIN.has(like)) return `instance of ${(like.constructor && like.constructor.name) || 'a class'}`;
  const inner = value instanceof Map ? [...value.keys(), ...value.values()] : value instanceof Set ? [...value] : [];
  for (const key of Reflect.ownKeys(value)) {
    const property = Object.getOwnPropertyDescriptor(value, key);
    if (property.get || property.set) return 'accessor';
    if (property.enumerable) inner.push(property.value);
  }
  for (const each of inner) {
    const found = flaw(each, seen);
    if (found) return found;
  }
  return '';
}
const PLAIN = new Set([Object, Array, Map, Set, Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError,
  URIError, Boolean, Number, String, BigInt].map((each) => each.prototype));

function save({ path: file }) {
  const kept = {}, lost = {};
  for (const name of Object.getOwnPropertyNames(globalThis).filter((each) => !isOurs(each))) {
    const why = flaw(globalThis[name]);
    if (why) { lost[name] = why; continue; }
    try { v8.serialize(globalThis[name]); kept[name] = globalThis[name]; } catch (error) { lost[name] = error.message; }
  }
  fs.writeFileSync(file, v8.serialize({ names: kept, folder: folder() }));
  return { kept: Object.keys(kept), lost };
}

function load({ path: file }) {
  const { names, folder: where } = v8.deserialize(fs.readFileSync(file));
  const lost = {};
  Object.assign(globalThis, names);
  try { process.chdir(where); } catch (error) { lost[where] = `folder: ${error.code}`; }
  return { kept: Object.keys(names), lost };
}

function forget({ names, values }) {
  const purged = [];
  for (const name of Object.keys(env)) {
    if (names.includes(name)) delete env[name];
    else if (values.some((each) => env[name].includes(each))) { delete env[name]; purged.push(name); }
  }
  for (const name of Object.getOwnPropertyNames(globalThis).filter((each) => !isOurs(each))) {
    const text = util.inspect(globalThis[name], { depth: 6, maxArrayLength: Infinity, maxStringLength: Infinity });
    if (values.some((each) => text.includes(each))) {
      if (!Reflect.deleteProperty(globalThis, name)) globalThis[name] = undefined; // a `var` cannot be deleted
      purged.push(name);
    }
  }
  return { purged };
}

const surround = ({ variables }) => { Object.assign(env, variables); return {}; };
const acts = { run, save, load, forget, surround, nothing: () => ({}) };

async function answer(request) {
  let said;
  try { said = await acts[request.do](request); } catch (error) { said = { lost: String(error && error.message) }; }
  stream.write(framed({ ...said, nonce: request.nonce }));
}

function framed(said) {
  const words = Buffer.from(stringify(said));
  const head = Buffer.alloc(4);
  head.writeUInt32BE(words.length);
  return Buffer.concat([head, words]);
}

let held = Buffer.alloc(0);
const stream = new net.Socket({ fd: control, readable: true, writable: true });
stream.on('data', (data) => {
  held = Buffer.concat([held, data]);
  while (held.length >= 4 && held.length >= 4 + held.readUInt32BE(0)) {
    const length = held.readUInt32BE(0), frame = held.subarray(4, 4 + length);
    held = held.subarray(4 + length);
    answer(parse(frame));
  }
});
stream.on('end', () => exit(0));
stream.on('error', () => exit(UNHEARD));
