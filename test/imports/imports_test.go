package imports

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// The house itself keeps the rules.
func TestHouse(t *testing.T) {
	tree := os.DirFS("../..")
	found, err := Check(tree, Rooms(), Programs())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
	sources, err := parse(tree)
	if err != nil {
		t.Fatal(err)
	}
	for name := range Programs() {
		if sources["cmd/"+name] == nil {
			t.Errorf("a rule for the program %s, which does not exist", name)
		}
	}
	for name := range Rooms() {
		if !slices.ContainsFunc(keys(sources), func(dir string) bool { return within(dir, name) }) {
			t.Errorf("a rule for the room %s, which does not exist", name)
		}
	}
}

// Every package opens with a paragraph, and no file is past 500 lines or named
// after nothing.
func TestPackages(t *testing.T) {
	tree := os.DirFS("../..")
	sources, err := parse(tree)
	if err != nil {
		t.Fatal(err)
	}
	for dir, p := range sources {
		documented := false
		for _, file := range p.files {
			documented = documented || file.Doc != nil && len(strings.Fields(file.Doc.Text())) >= 8
		}
		if !documented {
			t.Errorf("%s: no package comment", dir)
		}
		for _, word := range []string{"util", "common", "helper", "manager"} {
			if strings.Contains(dir, word) {
				t.Errorf("%s: named %s", dir, word)
			}
		}
	}
}

// A rule that can't fail is none: each kind of violation is found.
func TestViolationsAreFound(t *testing.T) {
	for _, c := range []struct {
		name, file, src, want string
	}{
		{"room", "internal/policy/x.go", `package policy; import _ "github.com/cofferdam/cofferdam/internal/store"`, "imports internal/store, which is not among its rooms"},
		{"leaf", "internal/task/x.go", `package task; import _ "golang.org/x/sys/unix"`, "imports golang.org/x/sys/unix, which is not among its modules"},
		{"pure", "internal/stage/x.go", `package stage; import _ "os"`, "imports os, but does no I/O"},
		{"guest", "internal/guest/agent/x.go", `package agent; import _ "github.com/cofferdam/cofferdam/internal/task"`, "imports internal/task"},
		{"unknown room", "internal/junk/x.go", `package junk`, "no rule for this room"},
		{"unknown program", "cmd/other/main.go", `package main`, "no rule for this program"},
		{"init", "internal/task/x.go", `package task; func init() {}`, "has an init function"},
		{"state", "internal/task/x.go", `package task; var cache = make(map[string]int)`, "package-level variable cache"},
		{"state without value", "internal/task/x.go", `package task; var mu int`, "package-level variable mu"},
		{"reach", "internal/egress/keeper/x.go", `package keeper; import _ "github.com/cofferdam/cofferdam/internal/egress/handover"`, "cmd/cofferdam-worker: reaches internal/store by cmd/cofferdam-worker → internal/egress/keeper → internal/egress/handover → internal/store"},
		{"vendor", "internal/fleet/x.go", `package fleet; import _ "gvisor.dev/gvisor/pkg/tcpip"`, "cmd/cofferdamd: reaches gvisor.dev/gvisor/pkg/tcpip"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := fstest.MapFS{
				"internal/egress/handover/y.go": {Data: []byte(`package handover; import _ "github.com/cofferdam/cofferdam/internal/store"`)},
				"cmd/cofferdam-worker/main.go":  {Data: []byte(`package main; import _ "github.com/cofferdam/cofferdam/internal/egress/keeper"`)},
				"cmd/cofferdamd/main.go":        {Data: []byte(`package main; import _ "github.com/cofferdam/cofferdam/internal/fleet"`)},
				c.file:                          {Data: []byte(c.src)},
			}
			found, err := Check(tree, Rooms(), Programs())
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(strings.Join(found, "\n"), c.want) {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}

func keys(s sources) []string {
	list := make([]string, 0, len(s))
	for k := range s {
		list = append(list, k)
	}
	return list
}
