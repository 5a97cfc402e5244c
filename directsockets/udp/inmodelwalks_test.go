package udp

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"exnet/internal/explore"
	"exnet/internal/longtest"
	"exnet/internal/racetest"
	"exnet/internal/steps/stepstest"
)

// mWalk is who there is, and how much may come.
type mWalk struct {
	threads                      [2]int8
	sends, tries                 int8
	drops, doubles, kills, moves int8
	jumps, hands, closes, slow   int8
	shared, lazy                 bool
}

func (k mWalk) String() string {
	who := func(t int8) string {
		return [...]string{"receives", "tries", "polls", "epoll", "edges", "peeks", "-"}[t]
	}
	return fmt.Sprintf("%s, %s: %d sends, %d drops, %d doubles, %d kills, %d moves, %d jumps, %d hands, %d closes, slow %d, shared %v, lazy %v",
		who(k.threads[0]), who(k.threads[1]), k.sends, k.drops, k.doubles, k.kills, k.moves, k.jumps, k.hands, k.closes, k.slow, k.shared, k.lazy)
}

// mKinds are pairs of threads.
func mKinds() (all [][2]int8) {
	for a := mReceives; a <= mPeeks; a++ {
		all = append(all, [2]int8{a, mNobody})
	}
	for _, a := range []int8{mReceives, mPolls, mSets, mEdges} {
		all = append(all, [2]int8{a, mTries})
	}
	return append(all, [2]int8{mReceives, mReceives}, [2]int8{mReceives, mPolls}, [2]int8{mReceives, mSets}, [2]int8{mPolls, mPolls},
		[2]int8{mPolls, mSets}, [2]int8{mPolls, mEdges})
}

// mWalks are the walks that are explored.
func mWalks() (all []mWalk) {
	for _, kinds := range mKinds() {
		two, tries := kinds[1] != mNobody, kinds[1] == mTries
		if two && !tries && !longtest.All() {
			continue
		}
		base := mWalk{threads: kinds, sends: 3, tries: 2}
		if two {
			base.sends, base.tries = 2, 1
		}
		add := func(change func(*mWalk)) {
			k := base
			change(&k)
			all = append(all, k)
		}
		add(func(k *mWalk) {})
		if two && testing.Short() {
			continue
		}
		add(func(k *mWalk) { k.jumps = 1 })
		add(func(k *mWalk) { k.lazy = true })
		if two && !longtest.All() {
			continue
		}
		add(func(k *mWalk) { k.drops = 1 })
		add(func(k *mWalk) { k.kills, k.slow = 1, 1 })
		add(func(k *mWalk) { k.moves = 1 })
		add(func(k *mWalk) { k.hands, k.closes = 1, 1 })
		add(func(k *mWalk) { k.doubles = 1 })
		add(func(k *mWalk) { k.shared = true })
	}
	return all
}

func (m *inModel) explore(k mWalk) explore.Result[mWorld] {
	w := mWorld{next: 1, byKernel: 1, published: 1, lost: mUnknown, armed: mAll, after: true, stop: math.MaxInt8, late: -1,
		shared: k.shared, lazy: k.lazy, sends: k.sends, drops: k.drops, doubles: k.doubles, kills: k.kills, moves: k.moves,
		jumps: k.jumps, hands: k.hands, closes: k.closes, slow: k.slow}
	for i, kind := range k.threads {
		w.threads[i] = mThread{kind: kind, left: k.tries}
	}
	w.arrive(1) // of before the flow
	return explore.All(func(w mWorld) ([]mWorld, string) {
		after := m.next(w)
		return after, m.wrong
	}, w)
}

// TestReceiverModel finds nothing wrong, and takes each step of the table.
func TestReceiverModel(t *testing.T) {
	racetest.SkipModel(t)
	m := &inModel{rows: make(map[string]bool)}
	all := 0
	for _, k := range mWalks() {
		r := m.explore(k)
		if r.Wrong != "" {
			t.Errorf("%v: %v", k, r)
		}
		t.Logf("%v: %d states", k, r.States)
		all += r.States
	}
	t.Logf("%d states", all)
	for _, row := range cSteps.Rows() {
		if !m.rows[row] {
			t.Errorf("no walk takes the step %s", row)
		}
	}
}

// mFound are walks that show the faults.
var mFound = [mFaults]mWalk{
	mNoLook:      {threads: [2]int8{mReceives, mNobody}},
	mNoWait:      {threads: [2]int8{mReceives, mNobody}},
	mTakesBell:   {threads: [2]int8{mReceives, mTries}, lazy: true},
	mNotCounted:  {threads: [2]int8{mPolls, mTries}},
	mNoKick:      {threads: [2]int8{mSets, mTries}},
	mWakesAnyway: {threads: [2]int8{mReceives, mTries}},
	mNeverLost:   {threads: [2]int8{mReceives, mNobody}, drops: 1},
	mNoStop:      {threads: [2]int8{mReceives, mNobody}, moves: 1},
	mJumpCounted: {threads: [2]int8{mReceives, mNobody}, jumps: 1},
	mDropsRing:   {threads: [2]int8{mReceives, mNobody}, hands: 1},
	mUnsettled:   {threads: [2]int8{mReceives, mNobody}},
	mNoAfter:     {threads: [2]int8{mReceives, mNobody}},
	mMissed:      {threads: [2]int8{mReceives, mNobody}, slow: 1},
}

// TestReceiverModelFaults: each fault is found.
func TestReceiverModelFaults(t *testing.T) {
	racetest.SkipModel(t)
	for f := mFine + 1; f < mFaults; f++ {
		m, k := &inModel{fault: f, rows: make(map[string]bool)}, mFound[f]
		if k.sends, k.tries = 3, 2; k.threads[1] != mNobody {
			k.sends, k.tries = 2, 1
		}
		r := m.explore(k)
		if r.Wrong == "" {
			t.Errorf("not found: %v, in %d states", f, r.States)
			continue
		}
		t.Logf("%v: %s", f, r.Wrong)
	}
}

// TestReceiverModelTable holds the steps of the model against those of the C library.
func TestReceiverModelTable(t *testing.T) {
	text, err := os.ReadFile("../preload/conn/dgstate.c")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, r := range regexp.MustCompile(`\{DG_IN_(\w+), DG_ON_(\w+), DG_IN_(\w+)\}`).FindAllStringSubmatch(string(text), -1) {
		rows = append(rows, strings.ToLower(strings.Join(r[1:], " ")))
	}
	slices.Sort(rows)
	stepstest.Compare(t, "dgstate.c", cSteps.Rows(), rows)
}
