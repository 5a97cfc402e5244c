// server EXPRESS FASTIFY SOCKETS; client EXPRESS FASTIFY SOCKETS SIZE: bodies, messages and events come back as sent.
const crypto = require('crypto')
const [role, a, b, c, size] = process.argv.slice(2)

async function server () {
  const app = require('express')()
  app.get('/small', (req, res) => res.send('small'))
  app.post('/echo', (req, res) => req.pipe(res))
  app.listen(+a, '127.0.0.1')
  const fast = require('fastify')({ bodyLimit: 1 << 30 })
  fast.addContentTypeParser('*', { parseAs: 'buffer' }, (req, body, done) => done(null, body))
  fast.get('/small', async () => ({ small: 1 }))
  fast.post('/echo', async (req) => req.body)
  await fast.listen({ port: +b, host: '127.0.0.1' })
  const http = require('http').createServer()
  const { Server } = require('socket.io')
  const io = new Server(http, { maxHttpBufferSize: 1 << 28 })
  io.on('connection', (s) => s.on('echo', (x, done) => done(x)))
  const { WebSocketServer } = require('ws')
  const wss = new WebSocketServer({ noServer: true, maxPayload: 1 << 28, perMessageDeflate: true })
  http.on('upgrade', (req, socket, head) => {
    if (req.url === '/ws') wss.handleUpgrade(req, socket, head, (ws) => ws.on('message', (m, binary) => ws.send(m, { binary })))
  })
  http.listen(+c, '127.0.0.1')
}

function same (what, x, y) {
  if (Buffer.compare(Buffer.from(x), Buffer.from(y)) !== 0) { console.log(what, 'differs', x.length, y.length); process.exit(1) }
}

async function client () {
  const { Pool } = require('undici')
  for (const port of [a, b]) {
    const pool = new Pool(`http://127.0.0.1:${port}`, { connections: 4, pipelining: port === a ? 1 : 4 })
    await Promise.all(Array.from({ length: 40 }, async (_, i) => {
      const body = crypto.randomBytes(i * 40000 + 1)
      const res = await pool.request({ path: '/echo', method: 'POST', body, headers: { 'content-type': 'application/octet-stream' } })
      same('body', Buffer.from(await res.body.arrayBuffer()), body)
    }))
    await pool.close()
  }
  const WebSocket = require('ws')
  const ws = new WebSocket(`ws://127.0.0.1:${c}/ws`, { maxPayload: 1 << 28 })
  await new Promise((resolve) => ws.on('open', resolve))
  const sent = []
  const done = new Promise((resolve) => {
    let n = 0
    ws.on('message', (m) => { same('message', m, sent[n++]); if (n === 200 * size) resolve() })
  })
  for (let i = 0; i < 200 * size; i++) { sent.push(crypto.randomBytes(i * 977 % 100000)); ws.send(sent[i]) }
  await done
  ws.close()
  for (const transports of [['polling'], ['websocket'], ['polling', 'websocket']]) {
    const s = require('socket.io-client')(`http://127.0.0.1:${c}`, { transports, forceNew: true })
    for (let i = 0; i < 30; i++) {
      const x = crypto.randomBytes(i * 10000)
      same('event', await new Promise((resolve) => s.emit('echo', x, resolve)), x)
    }
    s.close()
  }
}

if (role === 'server') server(); else client().then(() => process.exit(0))
