package link

import (
	"maps"
	"testing"

	"exnet/fabric"
)

type fakeLink struct {
	polls, arms int
	limits      map[fabric.VPID]int
}

func (l *fakeLink) Poll()                        { l.polls++ }
func (l *fakeLink) Arm()                         { l.arms++ }
func (l *fakeLink) Mailbox(v fabric.VPID, n int) { l.limits[v] = n }

func TestSet(t *testing.T) {
	var s Set
	if s.Poll() {
		t.Error("an empty set was polled")
	}
	s.Arm()
	s.Mailbox(1, 10)
	s.Mailbox(2, 20)
	s.Mailbox(2, 0)
	a, b := &fakeLink{limits: map[fabric.VPID]int{}}, &fakeLink{limits: map[fabric.VPID]int{}}
	s.Add(a)
	s.Add(b)
	s.Mailbox(3, 30)
	if want := map[fabric.VPID]int{1: 10, 3: 30}; !maps.Equal(a.limits, want) || !maps.Equal(b.limits, want) {
		t.Errorf("mailboxes %v, %v", a.limits, b.limits)
	}
	if !s.Poll() || a.polls != 1 || b.polls != 1 {
		t.Error("not polled")
	}
	s.Remove(a)
	s.Remove(a)
	s.Poll()
	s.Arm()
	if a.polls != 1 || a.arms != 0 || b.polls != 2 || b.arms != 1 {
		t.Errorf("%+v, %+v", a, b)
	}
	s.Remove(b)
	if s.Poll() {
		t.Error("an empty set was polled")
	}
}
