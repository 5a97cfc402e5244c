// Web PORT: the web server of the JDK, with four threads. GET sends a file of the directory www, POST sends back what it
// got. Web client PORT: posts and gets by the JDK's client, many at once, and compares.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.*;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;

class Web {
	static void serve(int port) throws Exception {
		HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 100);
		server.setExecutor(Executors.newFixedThreadPool(4));
		server.createContext("/", exchange -> {
			exchange.getResponseHeaders().add("Content-Type", "text/html");
			if (exchange.getRequestMethod().equals("POST")) {
				byte[] body = exchange.getRequestBody().readAllBytes();
				exchange.sendResponseHeaders(200, body.length == 0 ? -1 : body.length);
				exchange.getResponseBody().write(body);
			} else {
				Path path = Path.of("www" + exchange.getRequestURI().getPath());
				exchange.sendResponseHeaders(200, Files.size(path));
				Files.copy(path, exchange.getResponseBody());
			}
			exchange.close();
		});
		server.start();
	}

	static void client(int port) throws Exception {
		URI uri = URI.create("http://127.0.0.1:" + port + "/index.html");
		byte[] small = Files.readAllBytes(Path.of("www/index.html"));
		HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
		List<CompletableFuture<Void>> all = new ArrayList<>();
		for (int i = 0; i < 200; i++) {
			byte[] body = new byte[1 + i * 997];
			new Random(i).nextBytes(body);
			HttpRequest post = HttpRequest.newBuilder(uri).POST(HttpRequest.BodyPublishers.ofByteArray(body)).build();
			HttpRequest get = HttpRequest.newBuilder(uri).build();
			all.add(client.sendAsync(i % 2 == 0 ? post : get, HttpResponse.BodyHandlers.ofByteArray()).thenAccept(answer -> {
				if (!Arrays.equals(answer.body(), answer.request().method().equals("POST") ? body : small))
					throw new IllegalStateException(answer.request() + ": other bytes came");
			}));
			if (all.size() == 8) {
				CompletableFuture.allOf(all.toArray(new CompletableFuture[0])).get();
				all.clear();
			}
		}
	}

	public static void main(String[] args) throws Exception {
		if (args[0].equals("client"))
			client(Integer.parseInt(args[1]));
		else
			serve(Integer.parseInt(args[0]));
	}
}
