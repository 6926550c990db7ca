// Package catalog is the table of the harnesses that this release was tried
// with: where their packages are, what they must hash to, and where they lie
// inside a sandbox. It holds data and no behaviour beyond looking it up.
//
// Words. A package is a tarball of the npm registry. The pinned version is the
// one whose events, flags and exit codes the adapters were written against;
// another may be installed, and then only the registry vouches for its bytes.
package catalog

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// Inside is the folder where a sandbox finds its harnesses, one folder each.
const Inside = "/run/cofferdam/agents"

// Harness is one row.
type Harness struct {
	Name    string
	Version string // pinned
	Needs   string // a program of the sandbox's own that it runs with; empty: none
	Source  map[string]Source
}

// Source is where one architecture's package is. In Package and Version "{v}"
// stands for the version asked for.
type Source struct {
	Package string // of the registry
	Version string
	Program string // the program's path in the package, without the first folder
	SHA512  string // base64, of the pinned version's tarball; empty: the registry's word alone
}

// anyArch is the architecture of packages that run on every one.
const anyArch = "any"

// All returns the table.
func All() []Harness {
	return []Harness{
		{Name: "claude", Version: "2.1.332", Source: map[string]Source{
			"amd64": {
				Package: "@anthropic-ai/claude-code-linux-x64", Version: "{v}", Program: "claude",
				SHA512: "f4JWhzwYutJIHScC7/dYOPX6s28tt7ZADhsOi8zwOHq5fFPEuUeChh2NMfinSg0GrUckYxaeebC4h0DqiKzLcw==",
			},
			"arm64": {
				Package: "@anthropic-ai/claude-code-linux-arm64", Version: "{v}", Program: "claude",
				SHA512: "BlHNEtK38KBPWU31F4lUSS9sHclCyfWbThT1CErvxxH8+XcljYLZlQwdyXBkTD62rw1TgfE1u1a+quMWS0NSJg==",
			},
		}},
		{Name: "codex", Version: "0.171.0", Source: map[string]Source{
			"amd64": {
				Package: "@openai/codex", Version: "{v}-linux-x64", Program: "vendor/x86_64-unknown-linux-musl/bin/codex",
				SHA512: "l66NZkQgdk2C3pbcfULDz42yEUB581MVA6I+Y43Wp4OIqEy73HCdmZ0GTjeAHY2ycuH4N00d9VsLrwT1jxshTw==",
			},
			"arm64": {
				Package: "@openai/codex", Version: "{v}-linux-arm64", Program: "vendor/aarch64-unknown-linux-musl/bin/codex",
				SHA512: "9z17t4bbUJ9UCIb49O4PoA+ki+45q3rd8nZ8PeH6sYnlKkBld/Xpo/OS3h3Ti954+foshX4o7k5TCU8N7zzqQA==",
			},
		}},
		{Name: "gemini", Version: "0.61.0", Needs: "node", Source: map[string]Source{
			anyArch: {
				Package: "@google/gemini-cli", Version: "{v}", Program: "bundle/gemini.js",
				SHA512: "dbQ9A0qBtFJNi6XBkHvfZ6Azpn6PNgH/P8h2MZ67RLlX8hSAVjup39CRWqdRxZv7YXIuhrFaytr8y0jKnkoxnQ==",
			},
		}},
		{Name: "opencode", Version: "1.18.33", Source: map[string]Source{
			"amd64": {
				Package: "opencode-linux-x64", Version: "{v}", Program: "bin/opencode",
				SHA512: "q/t/3p2CTxOT9y2kvjesb/LZab2+1eqlhhWA02Be6mjTtmYtNBcBsrI5yDo4Fw7ZSPBW2oyMIGMNRqiKQjiAWw==",
			},
			"arm64": {Package: "opencode-linux-arm64", Version: "{v}", Program: "bin/opencode"},
		}},
	}
}

// Find returns the row of a name.
func Find(name string) (Harness, bool) {
	for _, h := range All() {
		if h.Name == name {
			return h, true
		}
	}
	return Harness{}, false
}

// Names returns every name, for texts.
func Names() string {
	var names []string
	for _, h := range All() {
		names = append(names, h.Name)
	}
	return strings.Join(names, ", ")
}

var versionPattern = regexp.MustCompile(`^[0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6}(-[0-9A-Za-z.]{1,40})?$`)

// ValidVersion says whether s can be a version: three numbers, and maybe a
// pre-release. Such a string is also safe as the name of a folder.
func ValidVersion(s string) bool { return versionPattern.MatchString(s) && !strings.Contains(s, "..") }

// Parse takes "NAME" or "NAME@VERSION" apart; without a version it is the pinned
// one. The error names what is wrong and what there is.
func Parse(s string) (Harness, string, error) {
	name, version, given := strings.Cut(s, "@")
	h, ok := Find(name)
	if !ok {
		return Harness{}, "", fmt.Errorf("agent %q is not known; there are %s", name, Names())
	}
	if !given {
		version = h.Version
	}
	if !ValidVersion(version) {
		return Harness{}, "", fmt.Errorf("version %q of agent %s is not one such as %s", version, name, h.Version)
	}
	return h, version, nil
}

// For returns where the version's package for a machine is. Its SHA512 is set
// only when the version is the pinned one.
func (h Harness) For(arch, version string) (Source, bool) {
	s, ok := h.Source[anyArch]
	if !ok {
		s, ok = h.Source[arch]
	}
	if version != h.Version {
		s.SHA512 = ""
	}
	s.Version = strings.ReplaceAll(s.Version, "{v}", version)
	return s, ok
}

// Program is where a sandbox finds the harness's program.
func Program(name string) string { return path.Join(Inside, name, "bin", name) }
