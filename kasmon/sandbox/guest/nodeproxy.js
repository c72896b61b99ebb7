'use strict';
// Routes requests of node programs by `fetch`, `http` and `https` to the sandbox's proxy, as `http_proxy` says.
//
// Loaded before each node program (`node --require`). Node before 22.21 supports no proxy itself, and later versions
// tunnel even plain HTTP, which the sandbox's proxy refuses. A program that uses the proxy itself, by node's own option
// or a library, is left alone. Programs that open sockets directly (`net`, `tls`) still fail, as the host name
// cannot be resolved in a sandbox.
const http = require('http');
const https = require('https');

const { env } = process;
const proxy = parsed(env.https_proxy || env.http_proxy);
const KNOWN = Symbol.for('undici.globalDispatcher.1');

if (proxy) {
  if (!http.globalAgent.options.proxyEnv) requests();
  if (typeof fetch === 'function' && !globalThis[KNOWN]) fetches();
}

function parsed(url) {
  try { return new URL(url); } catch { return null; }
}

// Reads the variable each time: what is allowed may change while the program runs.
function isFar(host) {
  const spared = (env.no_proxy || '').split(',').map((name) => name.trim().toLowerCase());
  return Boolean(host) && !spared.includes(String(host).toLowerCase().replace(/^\[|\]$/g, ''));
}

// Open a connection to `host` through the proxy, by CONNECT.
function tunnel(host, port, done) {
  const to = `${host.includes(':') ? `[${host}]` : host}:${port}`;
  const asking = http.request({
    agent: false, host: proxy.hostname, port: proxy.port, method: 'CONNECT', path: to, headers: { host: to },
  });
  asking.once('error', done);
  asking.once('connect', (answer, socket) => {
    if (answer.statusCode === 200) return done(null, socket);
    socket.destroy();
    return done(new Error(`the proxy refused ${to}: ${answer.statusCode} ${answer.statusMessage}`));
  });
  asking.end();
}

// Patch every agent of `http` and `https`, including a program's own.
function requests() {
  const { addRequest } = http.Agent.prototype;
  http.Agent.prototype.addRequest = function (request, options, ...more) {
    const isOurs = typeof options === 'object' && !options.socketPath && request.protocol === 'http:';
    if (!isOurs || request.method === 'CONNECT' || !isFar(options.host)) {
      return addRequest.call(this, request, options, ...more);
    }
    const port = Number(options.port || 80);
    const whole = `http://${options.host}${port === 80 ? '' : `:${port}`}${request.path}`;
    if (request._header) request._header = request._header.replace(` ${request.path} `, ` ${whole} `);
    request.path = whole;
    return addRequest.call(this, request, { ...options, host: proxy.hostname, port: proxy.port }, ...more);
  };
  const { createConnection } = https.Agent.prototype;
  https.Agent.prototype.createConnection = function (options, done) {
    const isOurs = typeof options === 'object' && !options.socket && !options.socketPath && typeof done === 'function';
    if (!isOurs || !isFar(options.host)) return createConnection.apply(this, arguments);
    tunnel(options.host, options.port || 443, (error, socket) => {
      if (error) return done(error);
      return done(null, createConnection.call(this, { ...options, socket }));
    });
    return undefined;
  };
}

// `fetch` takes its dispatcher from a global symbol; node creates it at the first call.
function fetches() {
  const plain = globalThis.fetch;
  let isReady = false;
  globalThis.fetch = function fetch(...words) {
    if (!isReady) {
      isReady = true;
      plain('data:,').catch(() => {});
      const direct = globalThis[KNOWN];
      if (direct && direct.constructor.name === 'Agent') sendByProxy(direct);
    }
    return plain.apply(this, words);
  };
}

function sendByProxy(direct) {
  const { connect } = require('tls');
  const secure = new direct.constructor({
    connect: ({ hostname, port, servername }, done) => tunnel(hostname, port || 443, (error, socket) => {
      if (error) return done(error, null);
      const safe = connect({ socket, servername: servername || hostname, ALPNProtocols: ['http/1.1'] });
      safe.once('secureConnect', () => { safe.off('error', done); done(null, safe); });
      return safe.once('error', done);
    }),
  });
  const dispatch = direct.dispatch.bind(direct);
  direct.dispatch = (options, handler) => {
    const { protocol, hostname, host, origin } = new URL(options.origin);
    if (!isFar(hostname)) return dispatch(options, handler);
    if (protocol === 'https:') return secure.dispatch(options, handler);
    const headers = Array.isArray(options.headers) ? [...options.headers, 'host', host] : { ...options.headers, host };
    return dispatch({ ...options, origin: proxy.origin, path: origin + options.path, headers }, handler);
  };
}
