#!/bin/bash
# Boost.Asio: an io_context in three threads, strands; at both ends.
# needs: g++=g++ /usr/include/boost/asio.hpp=libboost-dev
. "${0%/*}/lib.sh"

serve() {
	cat > asio.cpp <<-'X'
	#include <boost/asio.hpp>
	#include <memory>
	#include <thread>
	#include <cstdio>
	#include <cstdlib>
	using boost::asio::ip::tcp;
	struct session : std::enable_shared_from_this<session> {
		tcp::socket s; char d[65536];
		session(tcp::socket x) : s(std::move(x)) {}
		void read() {
			auto self = shared_from_this();
			s.async_read_some(boost::asio::buffer(d), [self](boost::system::error_code e, size_t n) {
				if (e) { boost::system::error_code x; self->s.shutdown(tcp::socket::shutdown_send, x); return; }
				boost::asio::async_write(self->s, boost::asio::buffer(self->d, n), [self](boost::system::error_code e, size_t) { if (!e) self->read(); });
			});
		}
	};
	static void accept(tcp::acceptor &a, boost::asio::io_context &io) {
		a.async_accept(boost::asio::make_strand(io), [&](boost::system::error_code e, tcp::socket s) {
			if (!e) { s.set_option(tcp::no_delay(true)); std::make_shared<session>(std::move(s))->read(); }
			accept(a, io);
		});
	}
	int main(int, char **v) {
		boost::asio::io_context io;
		tcp::acceptor a(io, tcp::endpoint(boost::asio::ip::address_v4::loopback(), atoi(v[1])));
		accept(a, io);
		std::thread t1([&] { io.run(); }), t2([&] { io.run(); });
		io.run();
	}
	X
	g++ -O1 -o asio asio.cpp -pthread
	exec ./asio "$PORT"
}

check() { python3 echo.py client "$PORT" $((SIZE << 23)); }

run "$@"
