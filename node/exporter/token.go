package exporter

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"

	"exnet/internal/infile"
)

// maxToken bounds a token, in bytes.
const maxToken = 4096

// forHolders answers only who shows the token that a file holds. It reads the file for each
// request, since a Secret of Kubernetes changes while the process runs.
func forHolders(file string, log *slog.Logger, h http.Handler) http.Handler {
	if file == "" {
		return h
	}
	var warned atomic.Bool // since the token could last be read: anybody can ask
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := readToken(file)
		if known := warned.Swap(err != nil); err != nil && !known {
			log.Warn("metrics: nobody can ask", "error", err)
		}
		shown, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case err != nil:
			http.Error(w, "the token cannot be read here: see the log", http.StatusInternalServerError)
		case !bearer || subtle.ConstantTimeCompare([]byte(shown), []byte(token)) == 0:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "show the token: Authorization: Bearer TOKEN", http.StatusUnauthorized)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// readToken reads a token without the blanks around it.
func readToken(path string) (string, error) {
	f, err := infile.Open(path)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || len(b) > maxToken {
		return "", fmt.Errorf("token: %s has %d bytes, not 1 to %d: write a random word there, such as openssl rand -hex 16 prints", path, len(b), maxToken)
	}
	return token, nil
}
