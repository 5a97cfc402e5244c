#!/usr/bin/env escript
%%! -smp enable
%% echo.erl PORT: writes back what it reads, a process for each connection.
main([Port]) ->
    {ok, Listener} = gen_tcp:listen(list_to_integer(Port), [binary, {ip, {127, 0, 0, 1}}, {active, false}, {reuseaddr, true}, {exit_on_close, false}]),
    accept(Listener).

accept(Listener) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    Pid = spawn(fun() -> receive go -> inet:setopts(Socket, [{active, once}]), echo(Socket) end end),
    ok = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go,
    accept(Listener).

echo(Socket) ->
    receive
        {tcp, Socket, Data} -> ok = gen_tcp:send(Socket, Data), inet:setopts(Socket, [{active, once}]), echo(Socket);
        {tcp_closed, Socket} -> gen_tcp:shutdown(Socket, write), gen_tcp:close(Socket)
    end.
