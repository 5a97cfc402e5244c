// cluster.js PORT HOW: a web server of two workers, which get their connections from the first process (rr) or
// accept themselves (none). GET sends a file of the directory www, POST sends back what it got.
const cluster = require("cluster"), fs = require("fs"), http = require("http");

if (cluster.isPrimary) {
	cluster.schedulingPolicy = process.argv[3] == "rr" ? cluster.SCHED_RR : cluster.SCHED_NONE;
	cluster.fork();
	cluster.fork();
	process.on("SIGTERM", () => cluster.disconnect(() => process.exit(0)));
	setInterval(() => {}, 1000);
} else {
	process.on("SIGTERM", () => process.exit(0));
	http.createServer((request, response) => {
		response.setHeader("Content-Type", "text/html");
		if (request.method == "POST") {
			response.setHeader("Content-Length", request.headers["content-length"]);
			request.pipe(response);
			return;
		}
		response.setHeader("Content-Length", fs.statSync("www" + request.url).size);
		fs.createReadStream("www" + request.url).pipe(response);
	}).listen(Number(process.argv[2]), "127.0.0.1");
}
