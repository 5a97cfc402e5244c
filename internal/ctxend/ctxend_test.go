package ctxend_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"exnet/internal/ctxend"
)

// late is a context whose end can be seen before it is told, as that of every context
// can for an instant.
type late struct{ context.Context }

func (late) Done() <-chan struct{} { return make(chan struct{}) }
func (late) Err() error            { return context.Canceled }

// AfterFunc is asked for by context.AfterFunc.
func (late) AfterFunc(func()) (stop func() bool) { return func() bool { return true } }

// What is to be ended has been ended when stop returns, in whatever order stop and the
// end of the context come. context.AfterFunc fails here.
func TestEndedIsEnded(t *testing.T) {
	for name, order := range map[string]func() (context.Context, context.CancelFunc){
		"stop first":      func() (context.Context, context.CancelFunc) { return late{t.Context()}, func() {} },
		"goroutine later": func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			ended := func(do func(context.Context, func()) func()) bool {
				var ended atomic.Bool
				ctx, cancel := order()
				stop := do(ctx, func() { ended.Store(true) })
				cancel()
				stop()
				return ended.Load()
			}
			for range 100_000 {
				if !ended(ctxend.Do) {
					t.Fatal("end was not called")
				}
			}
		})
	}
	plain := context.AfterFunc(late{t.Context()}, func() { t.Error("called") })
	if !plain() {
		t.Error("this test cannot find the fault")
	}
}

// The loop of a server: it looks at its context, and then waits for who accepts.
func TestServerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it says so when all wait
		for range 200_000 {
			ctx, cancel := context.WithCancel(t.Context())
			listener := make(chan struct{})
			var accepts sync.WaitGroup
			accepts.Go(func() { <-listener })
			go cancel()
			func() {
				defer accepts.Wait() // for ever, if nobody closes the listener
				defer ctxend.Do(ctx, func() { close(listener) })()
				for ctx.Err() == nil {
					runtime.Gosched()
				}
			}()
		}
	})
}

func TestStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		stop := ctxend.Do(ctx, func() { t.Error("called after stop") })
		stop()
		stop()
		cancel()
		synctest.Wait()
	})
}

// stop waits for an end that runs.
func TestStopWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		hold, ended := make(chan struct{}), false
		stop := ctxend.Do(ctx, func() { <-hold; ended = true })
		cancel()
		synctest.Wait()
		go close(hold)
		if stop(); !ended {
			t.Error("stop did not wait")
		}
	})
}

// Nobody uses the stop of context.AfterFunc but this package.
func TestNobodyStopsAfterFunc(t *testing.T) {
	root := moduleRoot(t)
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."), d.Name() == "ctxend":
			return filepath.SkipDir
		case filepath.Ext(path) != ".go":
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		seen++
		for _, pos := range stopsOfAfterFunc(t, path, src) {
			t.Errorf("%v: use ctxend.Do: this stop may win over a context that has ended", pos)
		}
		return nil
	})
	if err != nil || seen < 100 {
		t.Error(seen, "files,", err)
	}
}

// stopsOfAfterFunc is where a file takes the stop of context.AfterFunc.
func stopsOfAfterFunc(t *testing.T, path string, src []byte) (found []token.Position) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	dropped := map[ast.Expr]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.ExprStmt); ok {
			dropped[s.X] = true // as a statement it has no stop
		}
		call, ok := n.(*ast.CallExpr)
		if !ok || dropped[call] {
			return true
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "AfterFunc" {
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "context" {
				found = append(found, files.Position(call.Pos()))
			}
		}
		return true
	})
	return found
}

func TestFindsStops(t *testing.T) {
	const src = `package p
func f() {
	context.AfterFunc(ctx, stop)
	time.AfterFunc(1, stop)
	defer context.AfterFunc(ctx, end)()
	stop := context.AfterFunc(ctx, func() {
		context.AfterFunc(ctx, end)
	})
	_ = stop
}
`
	got := stopsOfAfterFunc(t, "p.go", []byte(src))
	if len(got) != 2 || got[0].Line != 5 || got[1].Line != 6 {
		t.Error(got)
	}
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		} else if dir == filepath.Dir(dir) {
			t.Fatal("no module")
		}
	}
}
