package paths

import "strings"

// failure is what kind of failure a connection had.
type failure string

// Kinds of failures.
const (
	wrongBytes   failure = "wrong" // other bytes came than were sent
	tooShort     failure = "short" // an end of file came before all bytes
	reset        failure = "reset" // the connection was reset
	otherFailure failure = "other"
)

// failureOf is the kind of what numbered.ParseFault says.
func failureOf(what string) failure {
	for _, k := range []struct {
		text string
		failure
	}{
		{"an end of file before", tooShort}, {"reset by peer", reset}, {"roken pipe", reset},
		{"are missing", wrongBytes}, {"out of order", wrongBytes}, {"repeated", wrongBytes}, {"foreign", wrongBytes}, {"damaged", wrongBytes}, {"came:", wrongBytes},
	} {
		if strings.Contains(what, k.text) {
			return k.failure
		}
	}
	return otherFailure
}
