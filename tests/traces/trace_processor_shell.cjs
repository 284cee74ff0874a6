#!/usr/bin/env node
// Perfetto's own trace processor, compiled to wasm by the npm package that PERFETTO_UI names, behind the HTTP interface
// of `trace_processor_shell`, which the Python API starts. It does what our tests need: /status, /parse, /notify_eof and
// /query. It is for tests only and listens on the loopback.
"use strict";
const fs = require("fs");
const http = require("http");
const path = require("path");

const folder = process.env.PERFETTO_UI;
const port = Number(process.argv[process.argv.indexOf("--http-port") + 1]);

// methods and fields of TraceProcessorRpc
const APPEND = 1, FINALIZE = 2, QUERY = 3;
const REQUEST = 2, APPEND_DATA = 101, QUERY_ARGS = 103, APPEND_RESULT = 201, QUERY_RESULT = 203;

function varint(value) {
  const bytes = [];
  for (; value >= 0x80; value = Math.floor(value / 128)) bytes.push((value % 128) | 0x80);
  return Buffer.from([...bytes, value]);
}

const tagged = (field, body) => Buffer.concat([varint(field * 8 + 2), varint(body.length), body]);

function* fields(bytes) {
  let at = 0;
  const read = () => {
    let value = 0, scale = 1, byte;
    do { byte = bytes[at++]; value += (byte & 0x7f) * scale; scale *= 128; } while (byte & 0x80);
    return value;
  };
  while (at < bytes.length) {
    const key = read(), wire = key % 8, field = Math.floor(key / 8);
    if (wire === 0) read();
    else if (wire === 2) { const length = read(); yield [field, bytes.subarray(at, at + length)]; at += length; }
    else throw new Error(`wire type ${wire} in an answer`);
  }
}

// the bundle is a web worker that is given one end of a message port; this is the other end
let answers = [];
const enginePort = { postMessage: (data) => answers.push(Buffer.from(data)) };
globalThis.self = globalThis;
process.chdir(folder); // the bundle reads its wasm from where it is run
const bundle = fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8");
new Function("require", "__dirname", "__filename", "module", "exports", bundle)(
  require, folder, path.join(folder, "engine_bundle.js"), { exports: {} }, {});
globalThis.onmessage({ data: { enginePort } });

let sequence = 0;
async function call(method, args, wanted) {
  while (!enginePort.onmessage) await new Promise((done) => setTimeout(done, 10));
  const number = Buffer.concat([varint(8), varint(++sequence)]);
  const request = Buffer.concat([number, varint(REQUEST * 8), varint(method), args]);
  answers = [];
  enginePort.onmessage({ data: new Uint8Array(tagged(1, request)) });
  const found = [];
  for (const [, message] of fields(Buffer.concat(answers))) {
    for (const [field, body] of fields(message)) if (field === wanted) found.push(body);
  }
  return Buffer.concat(found); // messages of one type one after the other are one message
}

http.createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", async () => {
    const body = Buffer.concat(parts);
    const handlers = {
      "/status": () => Buffer.alloc(0),
      "/parse": () => call(APPEND, tagged(APPEND_DATA, body), APPEND_RESULT),
      "/notify_eof": () => call(FINALIZE, Buffer.alloc(0), 0),
      "/query": () => call(QUERY, tagged(QUERY_ARGS, body), QUERY_RESULT),
    };
    const handler = handlers[request.url];
    try {
      response.writeHead(handler ? 200 : 404).end(handler ? await handler() : "");
    } catch (error) {
      response.writeHead(500).end(String(error));
    }
  });
}).listen(port, "127.0.0.1");
