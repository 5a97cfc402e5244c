package version

import (
	"runtime/debug"
	"testing"
)

func TestCommitOf(t *testing.T) {
	const revision = "0123456789abcdef0123456789abcdef01234567"
	for _, tt := range []struct {
		settings []debug.BuildSetting
		want     string
	}{
		{nil, ""},
		{[]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}}, ""},
		{[]debug.BuildSetting{{Key: "vcs.revision", Value: "0123"}}, "0123"},
		{[]debug.BuildSetting{{Key: "vcs.revision", Value: revision}, {Key: "vcs.modified", Value: "false"}}, "0123456789ab"},
		{[]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, {Key: "vcs.revision", Value: revision}}, "0123456789ab+"},
	} {
		if got := commitOf(tt.settings); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.settings, got, tt.want)
		}
	}
}

func TestString(t *testing.T) {
	if String() == "" {
		t.Error("no version")
	}
}
