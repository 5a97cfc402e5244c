import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;

/** Echo over sockets that block, and over channels with selectors. */
public class Echo {
	static final int TOTAL = 16 << 20;

	static byte at(int i) { return (byte) (i * 31 + (i >> 8)); }

	static void blocking() throws Exception {
		ServerSocket server = new ServerSocket(7005, 5, InetAddress.getLoopbackAddress());
		Thread echo = new Thread(() -> {
			try (Socket c = server.accept()) {
				c.getInputStream().transferTo(c.getOutputStream());
			} catch (Exception e) {
				throw new RuntimeException(e);
			}
		});
		echo.start();
		try (Socket c = new Socket(InetAddress.getLoopbackAddress(), 7005)) {
			Thread sender = new Thread(() -> {
				try {
					OutputStream out = c.getOutputStream();
					byte[] b = new byte[10007];
					for (int i = 0; i < TOTAL;) {
						int n = Math.min(b.length, TOTAL - i);
						for (int j = 0; j < n; j++) b[j] = at(i + j);
						out.write(b, 0, n);
						i += n;
					}
					c.shutdownOutput();
				} catch (Exception e) {
					throw new RuntimeException(e);
				}
			});
			sender.start();
			InputStream in = c.getInputStream();
			byte[] b = new byte[65536];
			int got = 0;
			for (int n; (n = in.read(b)) > 0;) {
				for (int j = 0; j < n; j++) if (b[j] != at(got + j)) throw new Exception("wrong byte at " + (got + j));
				got += n;
			}
			sender.join();
			if (got != TOTAL) throw new Exception("got " + got);
		}
		echo.join();
		server.close();
	}

	static void channels() throws Exception {
		Selector selector = Selector.open();
		ServerSocketChannel server = ServerSocketChannel.open();
		server.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 7006));
		server.configureBlocking(false);
		server.register(selector, SelectionKey.OP_ACCEPT);
		SocketChannel client = SocketChannel.open();
		client.configureBlocking(false);
		client.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), 7006));
		SelectionKey clientKey = client.register(selector, SelectionKey.OP_CONNECT);
		ByteBuffer out = ByteBuffer.allocate(50000), in = ByteBuffer.allocate(50000), echo = ByteBuffer.allocate(50000);
		out.limit(0);
		int sent = 0, got = 0;
		boolean ended = false;
		while (!ended) {
			selector.select();
			for (SelectionKey key : selector.selectedKeys()) {
				if (!key.isValid()) continue;
				if (key.channel() == server) {
					SocketChannel c = server.accept();
					if (c == null) continue;
					c.configureBlocking(false);
					c.register(selector, SelectionKey.OP_READ);
				} else if (key == clientKey) {
					if (key.isConnectable() && client.finishConnect()) key.interestOps(SelectionKey.OP_READ | SelectionKey.OP_WRITE);
					if (key.isWritable()) {
						if (!out.hasRemaining() && sent < TOTAL) {
							out.clear();
							while (out.hasRemaining() && sent < TOTAL) out.put(at(sent++));
							out.flip();
						}
						if (out.hasRemaining()) {
							client.write(out);
						} else {
							client.shutdownOutput();
							key.interestOps(SelectionKey.OP_READ);
						}
					}
					if (key.isReadable()) {
						in.clear();
						int n = client.read(in);
						if (n < 0) ended = true;
						in.flip();
						while (in.hasRemaining()) if (in.get() != at(got++)) throw new Exception("wrong byte at " + (got - 1));
					}
				} else { // the server's end
					SocketChannel c = (SocketChannel) key.channel();
					if (key.isReadable() && echo.hasRemaining() && c.read(echo) < 0 && echo.position() == 0) {
						c.close();
						continue;
					}
					echo.flip();
					c.write(echo);
					echo.compact();
					int ops = echo.position() > 0 ? SelectionKey.OP_WRITE : 0;
					if (echo.hasRemaining()) ops |= SelectionKey.OP_READ;
					key.interestOps(ops);
				}
			}
			selector.selectedKeys().clear();
		}
		if (got != TOTAL) throw new Exception("got " + got);
		client.close();
		server.close();
	}

	public static void main(String[] args) throws Exception {
		blocking();
		channels();
		System.out.println("ok");
	}
}
