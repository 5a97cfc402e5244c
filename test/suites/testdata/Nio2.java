import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.AsynchronousServerSocketChannel;
import java.nio.channels.AsynchronousSocketChannel;
import java.nio.channels.CompletionHandler;

/** Nio2 PORT: writes back what it reads, by asynchronous channels. */
public class Nio2 {
	static void read(AsynchronousSocketChannel ch, ByteBuffer buf) {
		buf.clear();
		ch.read(buf, null, new CompletionHandler<Integer, Void>() {
			@Override
			public void completed(Integer n, Void none) {
				if (n < 0) {
					close(ch);
					return;
				}
				buf.flip();
				write(ch, buf);
			}

			@Override
			public void failed(Throwable e, Void none) {
				close(ch);
			}
		});
	}

	static void write(AsynchronousSocketChannel ch, ByteBuffer buf) {
		ch.write(buf, null, new CompletionHandler<Integer, Void>() {
			@Override
			public void completed(Integer n, Void none) {
				if (buf.hasRemaining()) {
					write(ch, buf);
				} else {
					read(ch, buf);
				}
			}

			@Override
			public void failed(Throwable e, Void none) {
				close(ch);
			}
		});
	}

	static void close(AsynchronousSocketChannel ch) {
		try {
			ch.close();
		} catch (java.io.IOException e) {
			throw new java.io.UncheckedIOException(e);
		}
	}

	public static void main(String[] args) throws Exception {
		AsynchronousServerSocketChannel server = AsynchronousServerSocketChannel.open().bind(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])));
		while (true) {
			read(server.accept().get(), ByteBuffer.allocateDirect(65536));
		}
	}
}
