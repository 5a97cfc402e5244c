package emp

// Logger is what this package asks of a *slog.Logger. It keeps package log/slog out of programs
// that only look at a fabric, such as exn-run.
type Logger interface {
	Info(msg string, args ...any)
	Warn(msg string, args ...any)
}

// discard is a Logger that drops everything.
type discard struct{}

func (discard) Info(string, ...any) {}
func (discard) Warn(string, ...any) {}
