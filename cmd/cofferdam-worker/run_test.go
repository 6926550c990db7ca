package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

func TestArguments(t *testing.T) {
	all := []string{"--server", "http://x", "--token-file", "t", "--runsc", "r", "--guest", "g"}
	if f, err := parse(append(all, "--data", "d"), &bytes.Buffer{}); err != nil || f.data != "d" || f.guest != "g" {
		t.Fatalf("%+v %v", f, err)
	}
	for name, args := range map[string][]string{
		"--server": all[2:], "--guest": all[:6], "unexpected": append(all, "x"), "secret": append(all, "--secret", "x"),
	} {
		out := &bytes.Buffer{}
		if _, err := parse(args, out); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMachineIDStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "id")
	first, err := machineID(path)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := machineID(path); err != nil || again != first {
		t.Fatalf("%q became %q, %v", first, again, err)
	}
	if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	var f *task.Failure
	if _, err := machineID(path); !errors.As(err, &f) || f.Reason != task.InfraStorage {
		t.Fatal(err)
	}
}

func TestFactsOfThisMachine(t *testing.T) {
	if m := facts(t.TempDir()); m.CPUs < 1 || m.Memory < 1<<20 || m.DiskFree == 0 || m.Kernel == "" {
		t.Fatalf("%+v", m)
	}
}
