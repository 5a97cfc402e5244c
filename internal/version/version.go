// Package version says what this program was built from.
//
// Concurrency: all functions may be called from many goroutines.
package version

import "runtime/debug"

// release is the version of a package, which the linker sets (release.sh).
var release string

// String names the module's version and the commit, as far as the build knows
// them.
func String() string {
	text := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		text = info.Main.Version
	}
	if release != "" {
		text = release
	}
	if c := Commit(); c != "" {
		text += " commit " + c
	}
	return text
}

// Module returns the path of this program's module.
func Module() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Path != "" {
		return info.Main.Path
	}
	return "exnet"
}

// Commit returns the version control's name of what this program was built
// from, with a "+" if that was changed, or "" if the build does not know it (go
// run, go test, -buildvcs=false).
func Commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return commitOf(info.Settings)
}

func commitOf(settings []debug.BuildSetting) string {
	var revision, changes string
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			changes = "+"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + changes
}
