package segment

import "testing"

// Nothing is allocated for a byte that moves.
func TestAllocs(t *testing.T) {
	c, s := promoted(t, Config{})
	r, buf := newRegion(t, 65536), make([]byte, 65536)
	if _, err := c.Share(r); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1, 64, 480, 481, 65536} {
		if n := testing.AllocsPerRun(100, func() {
			if n, err := c.Send(buf[:size]); n != size || err != nil {
				t.Fatal(n, err)
			}
			for got := 0; got < size; {
				n, err := s.Recv(buf)
				if err != nil {
					t.Fatal(err)
				}
				got += n
			}
		}); n != 0 {
			t.Errorf("%d bytes: %v allocations", size, n)
		}
	}
	for name, f := range map[string]func(){
		"SendRegion": func() {
			if _, err := c.SendRegion(r, 0, 65536); err != nil {
				t.Fatal(err)
			}
			for got := 0; got < 65536; {
				b, err := s.Next()
				if err != nil {
					t.Fatal(err)
				}
				got += b.Len()
				s.Release(b.Len())
			}
		},
		"arm": func() {
			if s.ArmRX() {
				t.Fatal("ready")
			}
			if _, err := c.Send(buf[:1]); err != nil {
				t.Fatal(err)
			}
			s.Awake()
			if _, err := s.Recv(buf); err != nil {
				t.Fatal(err)
			}
			if !c.ArmTX() {
				t.Fatal("not ready")
			}
		},
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
