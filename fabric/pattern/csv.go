package pattern

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ReadCSV reads lines "from,to,bytes" with ranks from 0 on; a first line of words,
// empty lines and lines that begin with # are skipped. The error has a line for each
// mistake, with name and line.
func ReadCSV(name string, r io.Reader) (*Pattern, error) {
	var flows []Flow
	var errs []error
	ranks := 0
	scan := bufio.NewScanner(r)
	for line := 1; scan.Scan(); line++ {
		text := strings.TrimSpace(scan.Text())
		if text == "" || text[0] == '#' || line == 1 && strings.HasPrefix(strings.ToLower(text), "from") {
			continue
		}
		f, err := parseFlow(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", name, line, err))
			continue
		}
		ranks = max(ranks, int(f.From)+1, int(f.To)+1)
		flows = append(flows, f)
	}
	if err := scan.Err(); err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", name, err))
	}
	if len(errs) == 0 && ranks == 0 {
		errs = append(errs, fmt.Errorf("%s: %w: it has no flows", name, ErrInvalid))
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	p, err := newPattern(ranks, flows)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

func parseFlow(text string) (Flow, error) {
	fields := strings.Split(text, ",")
	if len(fields) != 3 {
		return Flow{}, fmt.Errorf("%w: %q: use from,to,bytes", ErrInvalid, text)
	}
	var n [3]uint64
	for i, s := range fields {
		var err error
		if n[i], err = strconv.ParseUint(strings.TrimSpace(s), 10, 63); err != nil || i < 2 && n[i] >= MaxRanks {
			what := [...]string{"rank", "rank", "number of bytes"}[i]
			return Flow{}, fmt.Errorf("%w: %q is not a %s", ErrInvalid, strings.TrimSpace(s), what)
		}
	}
	return Flow{int32(n[0]), int32(n[1]), n[2]}, nil
}
