<?php
// echo.php PORT: writes back what it reads, by select.
$listener = stream_socket_server("tcp://127.0.0.1:{$argv[1]}", $code, $text) or exit($text);
$conns = [];
$left = [];
while (true) {
	$in = array_filter($conns, fn($c) => strlen($left[(int)$c]) < 1 << 20 && !feof($c));
	$in[] = $listener;
	$out = array_filter($conns, fn($c) => $left[(int)$c] !== '');
	$none = null;
	stream_select($in, $out, $none, null);
	foreach ($in as $c) {
		if ($c === $listener) {
			$new = stream_socket_accept($listener);
			stream_set_blocking($new, false);
			$conns[(int)$new] = $new;
			$left[(int)$new] = '';
		} else {
			$left[(int)$c] .= fread($c, 65536);
		}
	}
	foreach ($conns as $id => $c) {
		if ($left[$id] !== '') {
			$left[$id] = substr($left[$id], (int)fwrite($c, $left[$id]));
		} elseif (feof($c)) {
			fclose($c);
			unset($conns[$id], $left[$id]);
		}
	}
}
