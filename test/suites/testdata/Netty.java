import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.ChannelInputShutdownEvent;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;

/** Netty PORT: writes back what it reads, and ends when the other end does. */
public class Netty {
	public static void main(String[] args) throws Exception {
		ServerBootstrap b = new ServerBootstrap().group(new NioEventLoopGroup(1), new NioEventLoopGroup(2)).channel(NioServerSocketChannel.class);
		b.childOption(ChannelOption.ALLOW_HALF_CLOSURE, true).childHandler(new ChannelInitializer<SocketChannel>() {
			@Override
			protected void initChannel(SocketChannel ch) {
				ch.pipeline().addLast(new ChannelInboundHandlerAdapter() {
					@Override
					public void channelRead(ChannelHandlerContext ctx, Object message) {
						ctx.write(message);
					}

					@Override
					public void channelReadComplete(ChannelHandlerContext ctx) {
						ctx.flush();
					}

					@Override
					public void channelWritabilityChanged(ChannelHandlerContext ctx) {
						ctx.channel().config().setAutoRead(ctx.channel().isWritable());
					}

					@Override
					public void userEventTriggered(ChannelHandlerContext ctx, Object event) {
						if (event instanceof ChannelInputShutdownEvent) {
							ctx.close();
						}
					}
				});
			}
		});
		b.bind("127.0.0.1", Integer.parseInt(args[0])).sync().channel().closeFuture().sync();
	}
}
