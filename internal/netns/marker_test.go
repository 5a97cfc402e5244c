package netns

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const markerText = "pid 4711\n" +
	"place 65024 131 1700000000000000001\n" +
	"ns 4 4026532301 1700000000000000002\n"

func testMarker() marker {
	return marker{
		pid:   4711,
		place: fileID{dev: 65024, ino: 131, ctime: 1700000000000000001},
		ns:    fileID{dev: 4, ino: 4026532301, ctime: 1700000000000000002},
	}
}

var compareMarker = cmp.AllowUnexported(marker{}, fileID{})

func TestMarkerText(t *testing.T) {
	m := testMarker()
	if diff := cmp.Diff(markerText, m.text()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	var got marker
	got.parse(markerText)
	if diff := cmp.Diff(m, got, compareMarker); diff != "" {
		t.Errorf("parse (-want +got):\n%s", diff)
	}
}

// A marker that a crash cut off names only what it names in full.
func TestMarkerCut(t *testing.T) {
	whole := testMarker()
	for n := range len(markerText) {
		var got marker
		got.parse(markerText[:n])
		lines := strings.Count(markerText[:n], "\n")
		var want marker
		if lines >= 1 {
			want.pid = whole.pid
		}
		if lines >= 2 {
			want.place = whole.place
		}
		if diff := cmp.Diff(want, got, compareMarker); diff != "" {
			t.Errorf("cut at %d (-want +got):\n%s", n, diff)
		}
	}
}

func FuzzMarkerParse(f *testing.F) {
	f.Add(markerText)
	f.Add("pid -1\nns 1 2\nplace x\n")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		var m, again marker
		m.parse(text)
		again.parse(m.text())
		if diff := cmp.Diff(m, again, compareMarker); diff != "" {
			t.Errorf("(-first +again):\n%s", diff)
		}
	})
}

func TestUserNSHint(t *testing.T) {
	none := map[string]string{}
	for _, tt := range []struct {
		name   string
		err    error
		sysctl map[string]string
		want   string
	}{
		{"limit 0", unix.ENOSPC, map[string]string{"user.max_user_namespaces": "0"}, "user.max_user_namespaces=15000"},
		{"Debian", unix.EPERM, map[string]string{"kernel.unprivileged_userns_clone": "0"}, "kernel.unprivileged_userns_clone=1"},
		{"Ubuntu", unix.EPERM, map[string]string{"kernel.apparmor_restrict_unprivileged_userns": "1"}, "kernel.apparmor_restrict_unprivileged_userns=0"},
		{"full", unix.ENOSPC, none, "raise the sysctl user.max_user_namespaces"},
		{"not built in", unix.EINVAL, none, "CONFIG_USER_NS"},
		{"unknown", unix.EPERM, map[string]string{"user.max_user_namespaces": "9"}, "security policy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := userNSHint(tt.err, func(name string) string { return tt.sysctl[name] })
			if !strings.Contains(got, tt.want) || !strings.Contains(got, "root") {
				t.Errorf("%q does not say %q", got, tt.want)
			}
		})
	}
}

func TestHints(t *testing.T) {
	t.Setenv(userNSEnv, "")
	for _, tt := range []struct {
		got, want string
	}{
		{createHint(unix.EPERM), "run as root"},
		{createHint(unix.ENOSPC), "user.max_net_namespaces"},
		{createHint(unix.EINVAL), "CONFIG_NET_NS"},
		{createHint(unix.EMFILE), ""},
		{nameHint(fs.ErrPermission), "needs root"},
		{nameHint(unix.EROFS), "needs root"},
		{nameHint(errors.New("other")), ""},
	} {
		if !strings.Contains(tt.got, tt.want) || (tt.want == "") != (tt.got == "") {
			t.Errorf("hint %q, want %q", tt.got, tt.want)
		}
	}
}
