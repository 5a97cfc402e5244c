// Package logger has what packages that log ask of a *slog.Logger. It keeps package log/slog out of
// programs that only look at a fabric or a broker, such as exn-run.
//
// # Concurrency
//
// The methods of a Logger may be called from any goroutine.
package logger

// Logger is notified of what happens: a text, and pairs of names and values, as a *slog.Logger
// is.
type Logger interface {
	Info(msg string, args ...any)
	Warn(msg string, args ...any)
}

// Discard is a Logger that drops everything.
type Discard struct{}

// Info drops a message.
func (Discard) Info(string, ...any) {}

// Warn drops a message.
func (Discard) Warn(string, ...any) {}
