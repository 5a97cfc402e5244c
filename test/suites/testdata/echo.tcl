# echo.tcl PORT: writes back what it reads, by events.
proc served {conn addr port} {
	fconfigure $conn -blocking 0 -translation binary -buffersize 65536
	fileevent $conn readable [list copied $conn]
}
proc copied {conn} {
	puts -nonewline $conn [read $conn 65536]
	flush $conn
	if {[eof $conn]} {
		fconfigure $conn -blocking 1
		close $conn
	}
}
socket -server served -myaddr 127.0.0.1 [lindex $argv 0]
vwait forever
