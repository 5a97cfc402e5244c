package pattern

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"exnet/fabric/pattern/pfprof"
	"exnet/internal/infile"
)

// maxRecording bounds the size of a file that ReadFile reads.
const maxRecording = 1 << 30

// ReadFile reads a pattern: CSV (from,to,bytes), a recording in PFProf's form, an
// array of such in one file, an archive of them, or a folder. The duration is that of
// the longest rank, 0 if none says. Errors name the file and where possible the line.
func ReadFile(path string) (*Pattern, time.Duration, error) {
	if strings.HasSuffix(path, ".csv") {
		f, err := infile.Open(path)
		if err != nil {
			return nil, 0, err
		}
		defer f.Close()
		p, err := ReadCSV(filepath.Base(path), f)
		return p, 0, err
	}
	all, err := ReadProcesses(path)
	if err != nil {
		return nil, 0, err
	}
	return Join(all)
}

// ReadProcesses reads a recording in PFProf's form.
func ReadProcesses(path string) ([]pfprof.Process, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return readDir(path)
	case info.Size() > maxRecording:
		return nil, fmt.Errorf("%s: %w: more than %d bytes", path, ErrInvalid, maxRecording)
	}
	f, err := infile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if strings.HasSuffix(path, ".gz") || strings.HasSuffix(path, ".tgz") {
		return readArchive(path, f)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxRecording+1)) // a pipe has no size
	if err == nil && len(data) > maxRecording {
		err = fmt.Errorf("%s: %w: more than %d bytes", path, ErrInvalid, maxRecording)
	}
	if err != nil {
		return nil, err
	}
	return parseObjects(filepath.Base(path), data)
}

func readDir(path string) (all []pfprof.Process, err error) {
	var errs []error
	names, err := fs.Glob(os.DirFS(path), "*.json") // path may have a * or [ in it
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s: %w: no *.json in it", path, ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		name = filepath.Join(path, name)
		data, err := infile.Read(name)
		if err != nil {
			return nil, err
		}
		some, err := parseObjects(filepath.Join(filepath.Base(path), filepath.Base(name)), data)
		errs = append(errs, err)
		all = append(all, some...)
	}
	return all, errors.Join(errs...)
}

func readArchive(path string, f io.Reader) (all []pfprof.Process, err error) {
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: it is not compressed by gzip: %w", path, ErrInvalid, err)
	}
	var errs []error
	t := tar.NewReader(io.LimitReader(z, maxRecording))
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if h.Typeflag != tar.TypeReg || !strings.HasSuffix(h.Name, ".json") || strings.HasPrefix(filepath.Base(h.Name), ".") {
			continue
		}
		data, err := io.ReadAll(t)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, h.Name, err)
		}
		some, err := parseObjects(filepath.Base(path)+": "+h.Name, data)
		errs = append(errs, err)
		all = append(all, some...)
	}
	if len(all) == 0 && errors.Join(errs...) == nil {
		return nil, fmt.Errorf("%s: %w: no *.json in it", path, ErrInvalid)
	}
	return all, errors.Join(errs...)
}

// parseObjects reads an object, or an array of objects. The error has a line for each rank with
// a mistake, with name and line.
func parseObjects(name string, data []byte) (all []pfprof.Process, err error) {
	text := bytes.TrimLeft(data, space)
	at := &position{name: name, data: data, line: 1}
	var list []json.RawMessage
	if len(text) > 0 && text[0] == '[' {
		if err := json.Unmarshal(data, &list); err != nil {
			return nil, at.addPlace(err)
		}
		at.skipTo(len(data) - len(text) + 1)
	} else {
		list = append(list, text)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%v: %w: a recording of 0 ranks", at, ErrInvalid)
	}
	var errs []error
	for _, object := range list {
		at.skipTo(len(data) - len(bytes.TrimLeft(data[at.offset:], ","+space)))
		p := pfprof.Process{Place: at.String()}
		if err := json.Unmarshal(object, &p); err != nil {
			errs = append(errs, at.addPlace(err))
		}
		all = append(all, p)
		at.skipTo(at.offset + len(object))
	}
	return all, errors.Join(errs...)
}

// space is what JSON allows between values.
const space = " \t\r\n"

// position is where parse is in a file.
type position struct {
	name   string
	data   []byte
	offset int
	line   int
}

func (p *position) skipTo(offset int) {
	offset = min(offset, len(p.data))
	p.line += bytes.Count(p.data[p.offset:offset], []byte("\n"))
	p.offset = offset
}

// String returns such as "run.json:7".
func (p *position) String() string { return fmt.Sprintf("%s:%d", p.name, p.line) }

// addPlace adds its place to an error of package json in what begins here.
func (p *position) addPlace(err error) error {
	at := *p
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		at.skipTo(p.offset + int(e.Offset))
	} else if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		at.skipTo(p.offset + int(e.Offset))
		what := map[reflect.Kind]string{
			reflect.Int: "a whole number", reflect.Uint64: "a whole number", reflect.Float64: "a number", reflect.String: "a string",
			reflect.Slice: "a list", reflect.Struct: "an object",
		}[e.Type.Kind()]
		err = fmt.Errorf("%s: %s is not %s", cmp.Or(e.Field, "a rank"), e.Value, what)
	}
	return fmt.Errorf("%v: %w: %w", &at, ErrInvalid, err)
}

// Join makes one pattern of what all ranks have sent. Every rank is there once. The error has
// a line for each rank with a mistake.
func Join(all []pfprof.Process) (*Pattern, time.Duration, error) {
	if len(all) == 0 || len(all) > MaxRanks {
		return nil, 0, fmt.Errorf("%w: a recording of %d ranks", ErrInvalid, len(all))
	}
	var errs []error
	var flows []Flow
	var seconds float64
	seen := make([]bool, len(all))
	for _, p := range all {
		if err := checkRank(&p, seen); err != nil {
			errs = append(errs, err)
			continue
		}
		seconds = max(seconds, p.Duration)
		for to, n := range p.TxBytes {
			if n > 0 {
				flows = append(flows, Flow{int32(p.Rank), int32(to), n})
			}
		}
	}
	if errs != nil {
		return nil, 0, errors.Join(errs...)
	}
	joined, err := newPattern(len(all), flows)
	if err != nil && all[0].Place != "" {
		err = fmt.Errorf("%s: %w", all[0].Place, err)
	}
	return joined, time.Duration(seconds * float64(time.Second)), err
}

// maxSeconds bounds a recording's duration: a century.
const maxSeconds = 100 * 366 * 24 * 3600

// checkRank returns what is wrong with a rank. seen says which ranks came before it.
func checkRank(p *pfprof.Process, seen []bool) error {
	what := ""
	switch n := len(seen); {
	case p.Procs != n:
		what = fmt.Sprintf("rank %d says n_procs is %d, but there are %d ranks", p.Rank, p.Procs, n)
	case p.Rank < 0 || p.Rank >= n:
		what = fmt.Sprintf("there is no rank %d of %d", p.Rank, n)
	case seen[p.Rank]:
		what = fmt.Sprintf("rank %d appears twice", p.Rank)
	case len(p.TxBytes) != n:
		what = fmt.Sprintf("rank %d: tx_bytes has %d entries for %d ranks", p.Rank, len(p.TxBytes), n)
	case !(p.Duration >= 0 && p.Duration <= maxSeconds):
		what = fmt.Sprintf("rank %d: duration %v is not a number of seconds from 0 to a century", p.Rank, p.Duration)
	}
	if p.Rank >= 0 && p.Rank < len(seen) {
		seen[p.Rank] = true
	}
	if what == "" {
		return nil
	}
	if p.Place != "" {
		return fmt.Errorf("%s: %w: %s", p.Place, ErrInvalid, what)
	}
	return fmt.Errorf("%w: %s", ErrInvalid, what)
}

// WriteArchive writes a recording as PFProf does: a .tar.gz with a file for each rank.
func WriteArchive(w io.Writer, all []pfprof.Process) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, p := range all {
		data, err := json.Marshal(p)
		if err != nil {
			return err
		}
		h := tar.Header{Name: fmt.Sprintf("oxton-result%d.json", p.Rank), Mode: 0o644, Size: int64(len(data)), Typeflag: tar.TypeReg}
		if err := t.WriteHeader(&h); err != nil {
			return err
		}
		if _, err := t.Write(data); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}
