package agent

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"exnet/internal/logger"
)

// What one account may have logged: lineBurst lines at once, then one in lineTime.
const (
	lineBurst = 20
	lineTime  = 10 * time.Second
	// maxBudgets is how many accounts have a budget of their own. Further ones share one, under the
	// name manyAccounts.
	maxBudgets   = 1024
	manyAccounts = "many accounts"
)

// accounts bounds how much each account makes a Logger write. Who may start processes or make
// namespaces can otherwise fill a log with a line for each.
//
// Concurrency: all methods may be called from many goroutines, also of the Loggers that For
// returns.
type accounts struct {
	to  logger.Logger
	now func() time.Time

	mu sync.Mutex
	// budgets by account.
	budgets map[string]*budget // +checklocks:mu
}

// budget is what one account may still have logged.
type budget struct {
	limiter *rate.Limiter
	dropped int // lines since the last one that was written
}

// newAccounts returns accounts that write to a Logger.
func newAccounts(to logger.Logger) *accounts {
	return &accounts{to: to, now: time.Now, budgets: make(map[string]*budget)}
}

// For returns a Logger for lines that an account causes. A line after some that were dropped has
// their number, as "dropped".
func (a *accounts) For(account string) logger.Logger { return accountLogger{a, account} }

type accountLogger struct {
	all     *accounts
	account string
}

func (l accountLogger) Info(msg string, args ...any) {
	if args, ok := l.all.takeLine(l.account, args); ok {
		l.all.to.Info(msg, args...)
	}
}

func (l accountLogger) Warn(msg string, args ...any) {
	if args, ok := l.all.takeLine(l.account, args); ok {
		l.all.to.Warn(msg, args...)
	}
}

// takeLine takes a line from an account's budget, and returns the values to log with it; false:
// drop it.
func (a *accounts) takeLine(account string, args []any) ([]any, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	b := a.budgetLocked(account, now)
	if !b.limiter.AllowN(now, 1) {
		b.dropped++
		return nil, false
	}
	if b.dropped > 0 {
		args = append(args[:len(args):len(args)], "account", account, "dropped", b.dropped)
		b.dropped = 0
	}
	return args, true
}

// +checklocks:a.mu
func (a *accounts) budgetLocked(account string, now time.Time) *budget {
	b := a.budgets[account]
	if b != nil {
		return b
	}
	if len(a.budgets) >= maxBudgets {
		for name, b := range a.budgets { // those that are full again are as new ones
			if b.dropped == 0 && b.limiter.TokensAt(now) >= lineBurst {
				delete(a.budgets, name)
			}
		}
	}
	if len(a.budgets) >= maxBudgets && account != manyAccounts {
		return a.budgetLocked(manyAccounts, now)
	}
	b = &budget{limiter: rate.NewLimiter(rate.Every(lineTime), lineBurst)}
	a.budgets[account] = b
	return b
}
