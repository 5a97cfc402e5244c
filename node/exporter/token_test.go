package exporter

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Only who shows the token reads the metrics; a new token counts from the next request on.
func TestToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	open := func() (*Exporter, error) {
		return Open(Config{
			Addr: "127.0.0.1:0", Token: path, About: func() string { return "a test" }, Log: slog.New(slog.NewTextHandler(&log, nil)),
		}, prometheus.NewGauge(prometheus.GaugeOpts{Name: "secret_gauge"}))
	}
	for _, bad := range []string{"", " \n", strings.Repeat("x", maxToken+1)} {
		write(bad)
		switch e, err := open(); {
		case err == nil:
			t.Errorf("a token of %d bytes is taken", len(bad))
			e.Close()
		case !strings.Contains(err.Error(), path):
			t.Errorf("a token of %d bytes: %v", len(bad), err)
		}
	}
	write("first\n")
	e, err := open()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	for _, step := range []struct {
		token, header string
		want          int
	}{
		{"first\n", "", http.StatusUnauthorized},
		{"first\n", "Bearer firs", http.StatusUnauthorized},
		{"first\n", "Bearer ", http.StatusUnauthorized},
		{"first\n", "Basic first", http.StatusUnauthorized},
		{"first\n", "Bearer first", http.StatusOK},
		{"second", "Bearer first", http.StatusUnauthorized},
		{"second", "Bearer second", http.StatusOK},
		{"", "Bearer ", http.StatusInternalServerError},
		{"third", "Bearer third", http.StatusOK},
		{"", "Bearer third", http.StatusInternalServerError},
	} {
		write(step.token)
		for _, page := range []string{"/metrics", "/"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(e.URL(), "/metrics")+page, nil)
			if err != nil {
				t.Fatal(err)
			}
			if step.header != "" {
				req.Header.Set("Authorization", step.header)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(res.Body)
			res.Body.Close()
			told := strings.Contains(string(text), "secret_gauge") || strings.Contains(string(text), "a test")
			if err != nil || res.StatusCode != step.want || told != (step.want == http.StatusOK) {
				t.Errorf("%q asks for %s with %q: %d, want %d; %v\n%s", step.header, page, step.token, res.StatusCode, step.want, err, text)
			}
		}
	}
	if n := strings.Count(log.String(), "nobody can ask"); n != 2 {
		t.Errorf("the log says %d times that nobody can ask, and twice the token went away: %s", n, &log)
	}
}
