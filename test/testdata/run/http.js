// An HTTP server and keep-alive clients, then a pipe of streams over net.
const http = require('http');
const net = require('net');
const assert = require('assert');

const body = Buffer.alloc(1 << 20, 'node');

function get(agent) {
	return new Promise((resolve, reject) => {
		http.get({ port: 7003, agent }, (res) => {
			const parts = [];
			res.on('data', (d) => parts.push(d));
			res.on('end', () => resolve(Buffer.concat(parts)));
		}).on('error', reject);
	});
}

async function overHTTP() {
	const server = http.createServer((req, res) => res.end(body));
	await new Promise((resolve) => server.listen(7003, '127.0.0.1', resolve));
	const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });
	const got = await Promise.all(Array.from({ length: 20 }, () => get(agent)));
	for (const g of got) assert(g.equals(body));
	agent.destroy();
	server.close();
}

async function overNet() {
	const server = net.createServer((c) => c.pipe(c));
	await new Promise((resolve) => server.listen(7004, '127.0.0.1', resolve));
	const c = net.connect(7004, '127.0.0.1');
	let n = 0;
	c.on('data', (d) => { n += d.length; });
	const sent = 8;
	for (let i = 0; i < sent; i++) {
		if (!c.write(body)) await new Promise((resolve) => c.once('drain', resolve));
	}
	c.end();
	await new Promise((resolve) => c.once('close', resolve));
	assert.strictEqual(n, sent * body.length);
	server.close();
}

overHTTP().then(overNet).then(() => console.log('ok'));
