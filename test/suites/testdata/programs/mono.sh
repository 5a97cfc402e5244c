#!/bin/bash
# Mono: asynchronous sockets in a pool of threads.
# needs: mono=mono-runtime mcs=mono-mcs python3=python3
. "${0%/*}/lib.sh"

serve() {
	cat > echo.cs <<-X
	using System.Net; using System.Net.Sockets; using System.Threading.Tasks;
	class P {
	  static async Task Client(TcpClient c) {
	    using (c) { var s = c.GetStream(); var b = new byte[65536]; int n;
	      while ((n = await s.ReadAsync(b, 0, b.Length)) > 0) await s.WriteAsync(b, 0, n); }
	  }
	  static void Main() {
	    var l = new TcpListener(IPAddress.Loopback, $PORT); l.Start();
	    for (;;) { var c = l.AcceptTcpClient(); Task.Run(() => Client(c)); }
	  }
	}
	X
	mcs -out:echo.exe echo.cs
	exec mono echo.exe
}

check() { python3 echo.py client "$PORT" $((SIZE << 23)); }

run "$@"
