package client

// Logger is what a broker or its client asks of a *slog.Logger. It keeps package log/slog out of
// programs without a log, such as exn-run.
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
