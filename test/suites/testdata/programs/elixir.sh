#!/bin/bash
# Elixir: a process for each connection, active once.
# needs: elixir=elixir python3=python3
. "${0%/*}/lib.sh"

serve() {
	cat > echo.exs <<-X
	defmodule E do
	  def client(c) do
	    :inet.setopts(c, active: :once)
	    receive do
	      {:tcp, ^c, d} -> :ok = :gen_tcp.send(c, d); client(c)
	      {:tcp_closed, ^c} -> :ok
	    end
	  end
	  def loop(l) do
	    {:ok, c} = :gen_tcp.accept(l)
	    p = spawn(fn -> receive do :go -> client(c) end end)
	    :gen_tcp.controlling_process(c, p)
	    send(p, :go)
	    loop(l)
	  end
	end
	{:ok, l} = :gen_tcp.listen($PORT, [:binary, active: false, reuseaddr: true, ip: {127, 0, 0, 1}])
	E.loop(l)
	X
	exec elixir echo.exs
}

check() { python3 echo.py client "$PORT" $((SIZE << 23)); }

run "$@"
